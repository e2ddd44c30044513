// What happens to edits that meet, and to what none reaches.
#include "tool/migrate/edits.h"

#include <catch.h>

#include "table/compat.h"
#include "tool/migrate/conditions.h"
#include "tool/migrate/rules.h"

using namespace ibvexp::migrate;

namespace {

File file_of(const char *text) {
  File file;
  file.text = text;
  return file;
}

Edit edit_of(const File &file, const char *what, const char *text) {
  return {file.text.find(what), std::string(what).size(), text, Kind::name, what};
}

}  // namespace

TEST_CASE("an edit inside another one goes") {
  File file = file_of("f(a | GONE);\n");
  file.add(edit_of(file, "GONE", "0"));
  file.add(edit_of(file, " | GONE", ""));
  file.settle();
  CHECK(file.result() == "f(a);\n");
  CHECK(file.whole());
}

TEST_CASE("the same edit from two translation units is one") {
  File file = file_of("OLD;\n");
  file.add(edit_of(file, "OLD", "NEW"));
  file.add(edit_of(file, "OLD", "NEW"));
  file.settle();
  CHECK(file.result() == "NEW;\n");
  CHECK(file.edits.size() == 1);
}

TEST_CASE("what means different things stays, and is a finding") {
  File file = file_of("  OLD;\n");
  file.uses[2] = "OLD";
  file.add(edit_of(file, "OLD", "ONE"));
  file.add(edit_of(file, "OLD", "OTHER"));
  file.settle();
  CHECK(file.edits.empty());
  REQUIRE(file.findings.size() == 1);
  CHECK(file.findings.begin()->kind == Kind::conflict);
  CHECK(file.result().find("  /* IBVEXP1105 OLD: ") == 0);
}

TEST_CASE("text is put in front of what is replaced there") {
  File file = file_of("f(attr);\n");
  file.add(edit_of(file, "attr", "modern"));
  file.add({2, 0, "NULL, ", Kind::call, "f"});
  file.settle();
  CHECK(file.result() == "f(NULL, modern);\n");
}

TEST_CASE("a use that no edit reaches was not compiled") {
  File file = file_of("#if 0\n\tOLD;\n#endif\nOLD;\n");
  file.uses[7] = file.uses[19] = "OLD";
  file.add({19, 3, "NEW", Kind::name, "OLD"});
  file.settle();
  CHECK(file.not_compiled() == 1);
  CHECK(file.places().size() - file.left_places() == 1);
  CHECK(file.result() ==
        "#if 0\n\t/* IBVEXP1104 OLD: not compiled with these flags; run ibvexp migrate again with "
        "flags that compile it */\n\tOLD;\n#endif\nNEW;\n");
}

TEST_CASE("what only a switch serves is looked up in the matrix") {
  CHECK(advice(std::string_view("ibv_exp_post_task")) ==
        "has no successor in rdma-core; libibverbs_exp serves it with IBVEXP_BEYOND=cross_channel "
        "only, see ibvexp matrix ibv_exp_post_task");
  CHECK(advice(std::string_view("ibv_exp_post_srq_ops"))
            .starts_with("rdma-core has ibv_create_srq_ex(IBV_SRQT_TM) / ibv_post_srq_ops; "
                         "libibverbs_exp serves it with IBVEXP_BEYOND=tag_matching only"));
  for (const ibvexp::Feature &f : ibvexp::features)
    if (f.answer.verdict == ibvexp::Verdict::beyond)
      CHECK(advice(f.name).ends_with(std::string("ibvexp matrix ").append(f.name)));
}

TEST_CASE("what this library does by itself is no successor") {
  CHECK(advice(std::string_view("ibv_exp_release_intf")) ==
        "ibvexp matrix ibv_exp_release_intf says what became of it");
  CHECK(
      advice(std::string_view("ibv_exp_create_cq")).starts_with("rdma-core has ibv_create_cq_ex"));
}

TEST_CASE("a comment stands once, however often it is asked for") {
  File file = file_of("  OLD(OLD);\n");
  file.findings = {{2, Kind::no_rule, "OLD"}, {6, Kind::no_rule, "OLD"}};
  const std::string once = file.result();
  CHECK(once ==
        "  /* IBVEXP1101 OLD: no successor is known; docs/migrating.md has examples */\n"
        "  OLD(OLD);\n");
  File again = file_of(once.c_str());
  again.take_out_comments();
  again.findings = {{once.find("OLD("), Kind::no_rule, "OLD"}};
  again.settle();
  CHECK(again.result() == once);
}

TEST_CASE("a comment goes when what it says is done, and comes back for an error below it") {
  const std::string line = "  OLD();\n";
  File file = file_of(("  /* IBVEXP1104 OLD: some advice */\n" + line).c_str());
  file.take_out_comments();
  CHECK_FALSE(file.leave_again(2));
  file.settle();
  CHECK(file.result() == line);
  CHECK(file.whole());
  CHECK(file.leave_again(file.text.find("OLD()")));
  CHECK_FALSE(file.whole());
}

TEST_CASE("the comment of a macro of several lines stands above it") {
  File file = file_of("int a;\n#define M \\\n  OLD\n");
  file.findings = {{21, Kind::in_macro, "OLD"}};
  const std::string made = file.result();
  CHECK(made.starts_with("int a;\n/* IBVEXP1103 OLD: "));
  CHECK(made.ends_with(" */\n#define M \\\n  OLD\n"));
}

TEST_CASE("neighbours that go leave no blank behind") {
  File file = file_of("\t.a = 1, .b = 2, .c = 3,\n");
  file.add({9, 8, "", Kind::gone, ".b"});
  file.add({16, 8, "", Kind::gone, ".c"});
  file.settle();
  CHECK(file.result() == "\t.a = 1,\n");
}

TEST_CASE("macros around legacy names, without include guards") {
  const std::string text =
      "#ifndef FILE_H\n#define FILE_H\n#if defined(HAVE_A) && HAVE_B\nint x;\n#else\n"
      "ibv_exp_x y;\n#endif\n#ifdef HAVE_C\nint z;\n#endif\n#endif\n";
  CHECK(macros_around_legacy(text) == std::set<std::string>{"HAVE_A", "HAVE_B"});
  const auto around = conditions_at(text, text.find("ibv_exp_x"));
  REQUIRE(around.size() == 1);
  CHECK(around[0].other_branch);
  CHECK(conditions_at(text, text.find("int z")).at(0).line == "#ifdef HAVE_C");
  CHECK(without_definitions("#define A 1\n# define AB 2\n", {"A"}) == "\n# define AB 2\n");
}

TEST_CASE("a finding inside of a removed statement is not reported") {
  File file = file_of("a.b = OLD;\nrest;\n");
  file.findings = {{6, Kind::no_rule, "OLD"}};
  file.add({0, 11, "", Kind::gone, "a.b"});
  file.settle();
  CHECK(file.whole());
  CHECK(file.result() == "rest;\n");
}

TEST_CASE("a wider form is chosen when the program needs it") {
  Rules rules(true);
  CHECK(rules.type("ibv_exp_wc")->modern == "ibv_wc");
  CHECK(rules.call("ibv_exp_poll_cq")->modern == "ibv_poll_cq");
  rules.note_use("ibv_exp_wc.timestamp");
  CHECK(rules.type("ibv_exp_wc")->modern == "ibvexp_wc");
  CHECK(rules.call("ibv_exp_poll_cq")->modern == "ibvexp_poll_cq");
  CHECK(rules.type("ibv_exp_send_wr")->modern == "ibv_send_wr");
}

TEST_CASE("without helper, what would need one has no rule") {
  const Rules rules(false);
  CHECK(rules.call("ibv_exp_reg_mr") == nullptr);
  CHECK(rules.call("ibv_exp_modify_qp")->modern == "ibv_modify_qp");
}

TEST_CASE("the tables name constants that only lost EXP_") {
  CHECK(Rules::name_by_table("IBV_EXP_QP_STATE") == "IBV_QP_STATE");
  CHECK(Rules::name_by_table("IBV_EXP_QP_GROUP_RSS").empty());
  // Another name: a rule has to say so.
  CHECK(Rules::name_by_table("IBV_EXP_CQ_ATTR_MODERATION").empty());
}

TEST_CASE("queue pairs of raw packets are not compared by number") {
  Rules rules(true), alone(false);
  CHECK(rules.compare("ibv_exp_wc", "qp") != nullptr);
  CHECK_FALSE(rules.by_function());
  CHECK(alone.compare("ibv_exp_wc", "qp") != nullptr);
  rules.note_use("IBV_QPT_RAW_PACKET");
  alone.note_use("IBV_QPT_RAW_PACKET");
  // The helper knows; without it there is no way.
  REQUIRE(rules.compare("ibv_exp_wc", "qp") != nullptr);
  CHECK(rules.by_function());
  CHECK(rules.compare("ibv_exp_wc", "qp")->function == "ibvexp_is_of");
  CHECK(alone.compare("ibv_exp_wc", "qp") == nullptr);
}
