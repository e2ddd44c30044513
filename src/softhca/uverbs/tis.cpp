#include "uverbs/tis.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "uverbs/devx_queue.h"
#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

constexpr u32 number_mask = 0xffffff;
// tisc of mlx5_ifc.h, and where it stands in the boxes of its commands.
constexpr u32 transport_domain_at = 0x24, tisc_bytes = 0xa0;
constexpr u32 in_tisc_at = 0x20, out_tisc_at = 0x10;

std::unordered_map<u32, std::weak_ptr<TransportDomain>> &domains() {
  static auto &map = *new std::unordered_map<u32, std::weak_ptr<TransportDomain>>;
  return map;
}

std::shared_ptr<TransportDomain> create_domain() {
  auto domain = std::make_shared<TransportDomain>();
  domains()[domain->number] = domain;
  return domain;
}

struct DomainObject : DevxObject {
  explicit DomainObject(File &f) : DevxObject(f), domain(create_domain()) {}
  // How the kernel names firmware's BAD_RES_STATE.
  int can_destroy() const override { return domain.use_count() > 1 ? EINVAL : 0; }
  std::shared_ptr<TransportDomain> domain;
};

struct TisObject : DevxObject {
  TisObject(File &f, std::shared_ptr<TransportDomain> d)
      : DevxObject(f), tis(std::make_shared<Tis>(std::move(d))) {}
  std::shared_ptr<Tis> tis;
};

const Tis *tis_of(const Object *o) {
  if (o->object_class == ObjectClass::qp) return static_cast<const QpObject *>(o)->tis.get();
  const auto *object = dynamic_cast<const TisObject *>(o);
  return object != nullptr ? object->tis.get() : nullptr;
}

}  // namespace

TransportDomain::TransportDomain() {
  static u32 next = 1;
  number = next++ & number_mask;
}

TransportDomain::~TransportDomain() { domains().erase(number); }

Tis::Tis(std::shared_ptr<TransportDomain> d) : domain(std::move(d)) {
  static u32 next = 1;
  number = next++ & number_mask;
}

std::shared_ptr<Tis> context_tis(File &file) {
  if (file.transport_domain == nullptr) file.transport_domain = create_domain();
  return std::make_shared<Tis>(file.transport_domain);
}

int transport_domain_create(File &file, Attrs &attrs, Command &c) {
  auto object = std::make_unique<DomainObject>(file);
  const u32 number = object->domain->number;
  return created_with(file, attrs, c, number, std::move(object));
}

int tis_create(File &file, Attrs &attrs, Command &c) {
  if (c.in.size() < in_tisc_at + transport_domain_at + 4) return EINVAL;
  const u32 wanted = load_be32(c.in.data() + in_tisc_at + transport_domain_at) & number_mask;
  const auto it = domains().find(wanted);
  auto domain = it != domains().end() ? it->second.lock() : nullptr;
  if (domain == nullptr) return reply(attrs, c, Status::bad_resource);
  auto object = std::make_unique<TisObject>(file, std::move(domain));
  const u32 number = object->tis->number;
  return created_with(file, attrs, c, number, std::move(object));
}

int tis_query(const Attrs &attrs, Command &c, const Object *o) {
  const Tis *tis = tis_of(o);
  if (tis == nullptr || (load_be32(c.in.data() + number_at) & number_mask) != tis->number)
    return EINVAL;
  std::array<u8, tisc_bytes> context{};
  store_be32(context.data() + transport_domain_at, tis->domain->number);
  if (c.out.size() > out_tisc_at)
    std::copy_n(context.begin(), std::min(context.size(), c.out.size() - out_tisc_at),
                c.out.begin() + out_tisc_at);
  return reply(attrs, c, Status::ok);
}

}  // namespace softhca::uverbs
