// Names in C, C++ and build files, and what is none.
#include "tool/audit/source.h"

#include <catch.h>

#include "tool/audit/subjects.h"

using namespace ibvexp::audit;

namespace {

std::string found(std::string_view text, bool build_file = false, std::string_view path = "a.c") {
  FileReport r;
  if (build_file) audit_build_file(text, r);
  else audit_source(path, text, r);
  std::string out;
  for (const Use &u : r.uses)
    out += std::to_string(u.line) + ":" + std::to_string(u.column) + " " +
           std::string(u.subject->name) + " " + std::string(name_of(u.evidence)) + "\n";
  return out;
}

}  // namespace

TEST_CASE("calls and constants are found where they are") {
  CHECK(found("int x;\n  qp = ibv_exp_create_qp(c, &a);\n") == "2:8 ibv_exp_create_qp code\n");
  CHECK(found("f |= IBV_EXP_QP_CREATE_UMR|IBV_EXP_SEND_FENCE;") ==
        "1:6 IBV_EXP_QP_CREATE_UMR code\n1:28 IBV_EXP_SEND_FENCE code\n");
  CHECK(found("my_ibv_exp_create_qp(); xIBV_EXP_SEND_FENCE;") == "");
  CHECK(found("ibv_open_xrc_domain(c, -1, O_CREAT);") == "1:1 ibv_open_xrc_domain code\n");
}

TEST_CASE("what today's libibverbs has too is no use") {
  CHECK(found("ibv_create_qp(pd, &a); ibv_post_send(qp, &wr, &bad); IBV_SEND_FENCE;") == "");
}

TEST_CASE("comments are skipped, lines still counted") {
  CHECK(found("// ibv_exp_create_qp\n/* ibv_exp_create_qp\n */ ibv_exp_poll_cq(1);\n") ==
        "3:5 ibv_exp_poll_cq code\n");
  CHECK(found("/* never closed ibv_exp_poll_cq") == "");
}

TEST_CASE("names in strings are kept apart") {
  CHECK(found("dlsym(h, \"ibv_exp_poll_cq\");") == "1:11 ibv_exp_poll_cq string\n");
  CHECK(found("\"\\\"\" ibv_exp_poll_cq \"open\nibv_exp_reg_mr") ==
        "1:6 ibv_exp_poll_cq code\n2:1 ibv_exp_reg_mr code\n");
  CHECK(found("R\"x(\nibv_exp_poll_cq \" )x\" + ibv_exp_reg_mr") == "2:25 ibv_exp_reg_mr code\n");
  CHECK(found("c = '\"'; ibv_exp_poll_cq(); n = 1'000; ibv_exp_reg_mr();") ==
        "1:10 ibv_exp_poll_cq code\n1:40 ibv_exp_reg_mr code\n");
  CHECK(found("puts(\"ibv_exp_poll_cq failed\"); puts(\"no ibv_exp_poll_cq\");") == "");
  CHECK(found("puts(\"ibv_exp_frobnicate\");") == "");
}

TEST_CASE("conditions ask for the API") {
  CHECK(
      found(
          "#if defined(HAVE_IBV_EXP_CREATE_QP) && \\\n  HAVE_DECL_IBV_EXP_SEND_FENCE\n#endif\n") ==
      "1:13 ibv_exp_create_qp probe\n2:3 IBV_EXP_SEND_FENCE probe\n");
  CHECK(found("#ifdef IBV_EXP_SEND_FENCE\n") == "1:8 IBV_EXP_SEND_FENCE probe\n");
}

TEST_CASE("names that no table has are said to be unknown") {
  FileReport r;
  audit_source("a.c", "ibv_exp_frobnicate(c);", r);
  REQUIRE(r.uses.size() == 1);
  CHECK(r.uses[0].subject->verdict == "unknown");
  CHECK(r.uses[0].subject->name == "ibv_exp_frobnicate");
}

TEST_CASE("types are as good as the verb they belong to") {
  FileReport r;
  audit_source("a.c", "struct ibv_exp_qp_init_attr a;", r);
  REQUIRE(r.uses.size() == 1);
  CHECK(r.uses[0].subject->verdict == "part of the API");
}

TEST_CASE("private layouts have a verdict of their own") {
  FileReport r;
  audit_source("a.c", "#include <infiniband/mlx5_hw.h>\nibv_mlx5_exp_get_qp_info(qp, &i);\n", r);
  REQUIRE(r.uses.size() == 2);
  for (const Use &u : r.uses) CHECK(u.subject == &private_layout());
}

TEST_CASE("build files probe") {
  CHECK(found("# ibv_exp_poll_cq\ndnl ibv_exp_poll_cq\nAC_CHECK_DECLS([IBV_EXP_SEND_FENCE, "
              "ibv_exp_poll_cq],,,\nibv_exp_post_send\n\nibv_exp_modify_qp",
              true) ==
        "3:17 IBV_EXP_SEND_FENCE probe\n3:37 ibv_exp_poll_cq probe\n4:1 ibv_exp_post_send probe\n"
        "6:1 ibv_exp_modify_qp probe\n");
}

TEST_CASE("what the preprocessor leaves out is no use") {
  CHECK(found("#if 0\nibv_exp_poll_cq();\n#if X\nibv_exp_poll_cq();\n#endif\nit's\n#else\n"
              "ibv_exp_reg_mr();\n#endif\nibv_exp_create_qp();\n") ==
        "8:1 ibv_exp_reg_mr code\n10:1 ibv_exp_create_qp code\n");
  CHECK(
      found("#if 1 /* always */\nibv_exp_reg_mr();\n#else\nibv_exp_poll_cq();\n#endif\n"
            "#if (0) // never\n# if 1\nibv_exp_poll_cq();\n# endif\n#elif X\nibv_exp_create_cq();\n"
            "#endif\n") == "2:1 ibv_exp_reg_mr code\n11:1 ibv_exp_create_cq code\n");
  CHECK(found("#if 0\nibv_exp_poll_cq();") == "");
  CHECK(found("#if 0x1\nibv_exp_poll_cq();") == "2:1 ibv_exp_poll_cq code\n");
}

TEST_CASE("declarations ask for nothing") {
  CHECK(found("enum x { A, IBV_EXP_WR_NOP = 3, IBV_EXP_WR_CQE_WAIT };\n"
              "#define IBV_EXP_SEND_FENCE 1\nint ibv_exp_poll_dc_info(int);\n"
              "struct ibv_qp *ibv_exp_post_task(void) {\n") ==
        "1:13 IBV_EXP_WR_NOP declaration\n1:33 IBV_EXP_WR_CQE_WAIT declaration\n"
        "2:9 IBV_EXP_SEND_FENCE declaration\n3:5 ibv_exp_poll_dc_info declaration\n"
        "4:16 ibv_exp_post_task declaration\n");
  CHECK(found("enum ibv_exp_wr_opcode o = IBV_EXP_WR_NOP; f((enum x){ IBV_EXP_WR_CQE_WAIT });\n"
              "#define X y\nibv_exp_poll_cq();\nreturn ibv_exp_poll_cq();\n") ==
        "1:6 ibv_exp_wr_opcode code\n1:28 IBV_EXP_WR_NOP code\n1:56 IBV_EXP_WR_CQE_WAIT code\n"
        "3:1 ibv_exp_poll_cq code\n4:8 ibv_exp_poll_cq code\n");
  CHECK(severity_of(*subject_of("IBV_EXP_WR_CQE_WAIT"), Evidence::declaration) == Severity::works);
}

TEST_CASE("Rust and Go bindings are read") {
  CHECK(kind_by_name("src/lib.rs") == FileKind::source);
  CHECK(kind_by_name("rdma.go") == FileKind::source);
  CHECK(found("fn f<'a>(x: &'a str) { let s = \"two\nlines\"; unsafe { ibv_exp_poll_cq(c) }; }\n"
              "let r = r#\"ibv_exp_reg_mr \" \"#; ibv_exp_create_cq();\n"
              "extern { pub fn ibv_exp_post_task(); }\n"
              "#[x] a = ibv_exp_wr_opcode_IBV_EXP_WR_CQE_WAIT;\n",
              false, "a.rs") ==
        "2:18 ibv_exp_poll_cq code\n3:33 ibv_exp_create_cq code\n"
        "4:17 ibv_exp_post_task declaration\n5:10 IBV_EXP_WR_CQE_WAIT code\n");
  CHECK(found("package rdma\n// ibv_exp_reg_mr\n\n// static int x(void) { return "
              "ibv_exp_poll_cq(0); }\nimport \"C\"\n// ibv_exp_reg_mr\n"
              "var a C.struct_ibv_exp_qp_init_attr\ns := "
              "`ibv_exp_reg_mr\n`\nC.ibv_exp_create_qp(c, &a)\n",
              false, "a.go") ==
        "4:32 ibv_exp_poll_cq code\n7:9 ibv_exp_qp_init_attr code\n10:3 ibv_exp_create_qp code\n");
}

TEST_CASE("types belong to the feature that they are for") {
  const auto feature = [](std::string_view name) { return std::string(subject_of(name)->family); };
  CHECK(feature("ibv_exp_qp_attr") == "Queue pairs");
  CHECK(feature("ibv_exp_qp_init_attr") == "Queue pairs");
  CHECK(feature("ibv_exp_device_attr") == "Devices, contexts and ports");
  CHECK(feature("ibv_exp_send_wr") == "Queue pairs");
  CHECK(feature("ibv_exp_wc") == "Completion queues and polling");
  CHECK(feature("ibv_exp_cq_init_attr") == "Completion queues and polling");
  CHECK(feature("ibv_exp_qp_burst_family") == "Accelerated verbs");
  CHECK(feature("ibv_exp_dct_create_flags") == "Dynamically connected transport");
  for (const std::string_view name : {
#include "api_names.inc"
       })
    CHECK(subject_of(name)->family != "Types and macros");
}

TEST_CASE("text in no encoding is read all the same") {
  CHECK(found("\xff\xfe \xe9t\xe9; ibv_exp_poll_cq(); \x80") == "1:9 ibv_exp_poll_cq code\n");
  CHECK(found(std::string_view("a\0ibv_exp_poll_cq", 17)) == "1:3 ibv_exp_poll_cq code\n");
}

TEST_CASE("files are known by their names") {
  CHECK(kind_by_name("a/b.c") == FileKind::source);
  CHECK(kind_by_name("config.h.in") == FileKind::source);
  CHECK(kind_by_name("a.b/CMakeLists.txt") == FileKind::build_file);
  CHECK(kind_by_name("m4/verbs.m4") == FileKind::build_file);
  CHECK(kind_by_name("a.c/README") == FileKind::other);
  CHECK(kind_by_name("notes.txt") == FileKind::other);
}

TEST_CASE("severities and efforts follow from rows") {
  const Subject *qp = subject_of("ibv_exp_create_qp");
  REQUIRE(qp != nullptr);
  CHECK(qp->severity == Severity::works);  // what it refuses has rows of its own
  CHECK(qp->effort == Effort::rework);
  CHECK(subject_of("ibv_exp_poll_dc_info")->severity == Severity::refused);
  CHECK(subject_of("ibv_exp_poll_dc_info")->effort == Effort::replace);
  CHECK(subject_of("ibv_create_qp") == nullptr);
}
