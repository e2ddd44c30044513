#include "tool/audit/binary/table_calls.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "tool/audit/binary/anchors.h"
#include "tool/audit/binary/arm64.h"
#include "tool/audit/binary/recogniser.h"
#include "tool/elf_head.h"

namespace ibvexp::audit {
namespace {

// Rounds of callers of functions that return a table.
constexpr int max_rounds = 6;
// Bytes of code to evaluate; less are not worth a thread.
constexpr std::size_t worth_a_thread = std::size_t{1} << 20;
constexpr std::size_t giant_function = std::size_t{128} << 10;

// Threads beside those that audits run in: for large binaries, as many as there are
// processors, whoever takes them.
std::atomic<int> spare_threads{static_cast<int>(std::max(1U, std::thread::hardware_concurrency())) -
                               1};

class Helpers {
 public:
  explicit Helpers(std::size_t wanted) {
    while (count_ < wanted) {
      int free = spare_threads.load();
      if (free <= 0) break;
      if (spare_threads.compare_exchange_weak(free, free - 1)) ++count_;
    }
  }
  ~Helpers() { spare_threads += static_cast<int>(count_); }
  Helpers(const Helpers &) = delete;
  Helpers &operator=(const Helpers &) = delete;
  std::size_t count() const { return count_; }

 private:
  std::size_t count_ = 0;
};

class Search {
 public:
  explicit Search(const ElfImage &image) : image_(image), code_(image) {
    workers_.push_back(std::make_unique<Recogniser>(code_));
  }

  Dispatch run() {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < all().size(); ++i)
      if (code_.looks_up[i] != 0) chosen.push_back(i);
    evaluate(chosen);
    evaluate_callers();
    for (const auto &w : workers_) w->evaluate_handed_on();
    const bool dispatches = std::any_of(workers_.begin(), workers_.end(),
                                        [](const auto &w) { return !w->dispatch().sites.empty(); });
    // Of others, whatever looks like a private structure is none.
    const bool of_verbs = dispatches || tool::names_verbs(image_);
    // Private structures are known as x86-64 has them.
    if (of_verbs && image_.is_x86_64()) evaluate_layouts();
    Dispatch out = merge();
    if (!of_verbs || !image_.is_x86_64()) out.layouts.clear();
    return out;
  }

 private:
  const std::vector<Function> &all() const { return code_.functions.all(); }
  std::size_t size_of(std::size_t i) const { return all()[i].end - all()[i].start; }

  // Each function once, on all processors that are free.
  void evaluate(std::vector<std::size_t> chosen) {
    std::erase_if(chosen, [&](std::size_t i) { return !evaluated_.insert(i).second; });
    std::size_t bytes = 0;
    for (const std::size_t i : chosen) bytes += size_of(i);
    // The largest first: they take longest.
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](std::size_t a, std::size_t b) { return size_of(a) > size_of(b); });
    const Helpers helpers(bytes / worth_a_thread);
    while (workers_.size() < helpers.count() + 1)
      workers_.push_back(std::make_unique<Recogniser>(code_));
    // Of those that take much memory, only one at a time.
    std::size_t giants = 0;
    while (giants < chosen.size() && size_of(chosen[giants]) > giant_function) ++giants;
    std::atomic<std::size_t> next{giants};
    constexpr std::size_t portion = 4;
    const auto work = [&](Recogniser &worker) {
      for (std::size_t first; (first = next.fetch_add(portion)) < chosen.size();)
        for (std::size_t i = first; i < std::min(first + portion, chosen.size()); ++i)
          worker.evaluate(chosen[i]);
    };
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < helpers.count(); ++i)
      threads.emplace_back([&, i] { work(*workers_[i + 1]); });
    for (std::size_t i = 0; i < giants; ++i) workers_.front()->evaluate(chosen[i]);
    work(*workers_.front());
  }

  void evaluate_callers() {
    std::set<std::size_t> done;
    for (int round = 0; round < max_rounds; ++round) {
      std::set<std::size_t> found;
      for (const auto &w : workers_)
        found.insert(w->return_tables().begin(), w->return_tables().end());
      for (const auto &w : workers_) w->learn(found);
      std::set<std::uint64_t> starts;
      for (const std::size_t i : found)
        if (done.insert(i).second) starts.insert(all()[i].start);
      if (starts.empty()) return;
      std::set<std::size_t> callers;
      for_each_direct_call(image_, [&](std::uint64_t from, std::uint64_t target, bool) {
        if (!starts.contains(target)) return;
        if (const Function *f = code_.functions.at(from)) callers.insert(code_.functions.index(*f));
      });
      image_.release_pages();
      evaluate({callers.begin(), callers.end()});
    }
  }

  void evaluate_layouts() {
    const std::set<std::uint64_t> creating = creating_functions();
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < all().size(); ++i)
      if (may_read_layouts(image_.at(all()[i].start).first(size_of(i)),
                           creating.contains(all()[i].start)))
        chosen.push_back(i);
    evaluate(std::move(chosen));
  }

  // Start addresses of functions that may call a verb which creates an object: through a slot of
  // the operation table, the verb's PLT entry or its GOT word.
  std::set<std::uint64_t> creating_functions() const {
    std::set<std::uint64_t> out;
    for (const auto &w : workers_)
      for (const SlotSite &s : w->dispatch().sites) out.insert(s.function);
    std::set<std::uint64_t> words;
    for (const auto &[word, name] : image_.import_words())
      if (object_of(name)) words.insert(word);
    if (words.empty()) return out;
    for (const Segment &s : image_.segments()) {
      if (!s.executable) continue;
      for (std::size_t i = 0; i + 4 <= s.bytes.size(); ++i) {
        std::int32_t distance;
        std::memcpy(&distance, &s.bytes[i], sizeof distance);
        const std::uint64_t from = s.address + i + 4;
        const std::uint64_t to = from + static_cast<std::uint64_t>(std::int64_t{distance});
        const bool plt_entry =
            to - s.address < s.bytes.size() && words.contains(linkage_word(image_, to));
        if (!plt_entry && !words.contains(to)) continue;
        if (const Function *f = code_.functions.at(from)) out.insert(f->start);
      }
    }
    return out;
  }

  Dispatch merge() {
    Dispatch out;
    out.functions = all().size();
    for (const Segment &s : image_.segments())
      if (s.executable) out.code_bytes += s.bytes.size();
    for (const auto &w : workers_) {
      Dispatch &part = w->dispatch();
      out.evaluated += part.evaluated;
      out.cut = out.cut || part.cut;
      const auto append = [](auto &to, auto &from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()),
                  std::make_move_iterator(from.end()));
      };
      append(out.sites, part.sites);
      append(out.complaints, part.complaints);
      append(out.layouts, part.layouts);
    }
    auto &sites = out.sites;
    const auto key = [](const SlotSite &s) { return std::tuple(s.address, s.from_end, !s.called); };
    std::stable_sort(sites.begin(), sites.end(),
                     [&](const SlotSite &a, const SlotSite &b) { return key(a) < key(b); });
    // A call names the load it is made of again.
    sites.erase(std::unique(sites.begin(), sites.end(),
                            [](const SlotSite &a, const SlotSite &b) {
                              return a.address == b.address && a.from_end == b.from_end;
                            }),
                sites.end());
    std::stable_sort(
        out.layouts.begin(), out.layouts.end(),
        [](const LayoutSite &a, const LayoutSite &b) { return a.address < b.address; });
    return out;
  }

  const ElfImage &image_;
  CodeMap code_;
  std::vector<std::unique_ptr<Recogniser>> workers_;
  std::set<std::size_t> evaluated_;
};

}  // namespace

CodeMap::CodeMap(const ElfImage &i) : image(i), functions(i) {
  std::size_t read = 0;
  for (const Function &f : functions.all()) {
    const auto bytes = image.at(f.start).first(f.end - f.start);
    if ((read += bytes.size()) > ElfImage::release_after) {
      image.release_pages();
      read = 0;
    }
    looks_up.push_back((image.is_arm64() ? arm64::may_look_up(bytes) : may_look_up(bytes)) ? 1 : 0);
  }
  image.release_pages();
}

namespace {

// Whether any code may look up the operation table: a function of the unwind tables, or code that
// they do not describe. Without an answer here all functions have to be found, which takes longer
// than this; most files have few signs of a look-up.
bool may_dispatch(const ElfImage &image) {
  if (!image.is_x86_64()) return true;
  std::vector<std::uint64_t> undescribed;
  for (const Segment &s : image.segments()) {
    if (!s.executable) continue;
    std::size_t done = 0, kept = 0;
    for (std::size_t at; (at = next_sign(s.bytes, done)) < s.bytes.size();) {
      if (at - kept > ElfImage::release_after) {
        image.release_pages();
        kept = at;
      }
      const auto f = framed_function(image, s.address + at);
      if (!f) {
        if (may_be_inlined(s.bytes, at)) return true;
        undescribed.push_back(s.address + at);
        done = at + 1;
        continue;
      }
      const std::size_t start = f->start > s.address + done ? f->start - s.address : done;
      const std::size_t end = std::min<std::uint64_t>(f->end - s.address, s.bytes.size());
      if (may_look_up(s.bytes.subspan(start, end - start))) return true;
      done = end;
    }
    image.release_pages();
  }
  if (undescribed.empty()) return false;
  std::sort(undescribed.begin(), undescribed.end());
  return std::ranges::any_of(
      small_functions(image, undescribed, small_look_up),
      [&](const Function &f) { return may_look_up(image.at(f.start).first(f.end - f.start)); });
}

}  // namespace

Dispatch find_dispatch(const ElfImage &image) {
  if (!tool::names_verbs(image) && !may_dispatch(image)) return {};
  return Search(image).run();
}

}  // namespace ibvexp::audit
