/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Support of the generated ABI tests: a check compares one number of the
 * legacy interface with ours. Compiled as C and as C++, because the two
 * disagree about more than one expects (enumerator types, anonymous members).
 */
#ifndef IBVEXP_TESTS_ABI_CHECK_H
#define IBVEXP_TESTS_ABI_CHECK_H

#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#include <type_traits>
#define SAME_TYPE(expr, ...) \
  std::is_same_v<std::remove_reference_t<decltype(expr)>, std::type_identity_t<__VA_ARGS__>>
#define ENUMERATOR_OF(name, e) std::is_same_v<decltype(name), e>
#define ALIGN_OF(type) alignof(type)
#define NEGATIVE(type) std::is_signed_v<std::underlying_type_t<type>>
#else
#define SAME_TYPE(expr, ...) __builtin_types_compatible_p(__typeof__(expr), __VA_ARGS__)
/* Enumerators have no type of their own in C. */
#define ENUMERATOR_OF(name, e) 1
#define ALIGN_OF(type) _Alignof(type)
#define NEGATIVE(type) ((type)-1 < (type)1)
#endif

#define MEMBER(type, path) (((type *)0)->path)

struct abi_check {
  const char *fact; /* size, offset, value, ... */
  const char *name;
  const char *releases;
  long long expected;
  long long found;
  int at_least; /* expected is a lower bound */
};

/*
 * Recorded on x86-64. The locks of other machines have other sizes, and what lies
 * behind one of these structures moves by as much: 8 bytes on AArch64.
 */
static inline int holds_lock(const char *name) {
  static const char *const structures[] = {"ibv_context",   "ibv_cq",           "ibv_exp_dct",
                                           "ibv_qp",        "ibv_srq",          "ibv_srq_legacy",
                                           "verbs_context", "verbs_environment"};
  static const char prefix[] = "struct ";

  if (strncmp(name, prefix, sizeof(prefix) - 1)) return 0;
  name += sizeof(prefix) - 1;
  for (size_t i = 0; i < sizeof(structures) / sizeof(*structures); i++) {
    size_t length = strlen(structures[i]);

    if (!strncmp(name, structures[i], length) && (!name[length] || name[length] == '.')) return 1;
  }
  return 0;
}

static inline int as_recorded(const struct abi_check *c) {
  const long long growth = (long long)sizeof(pthread_mutex_t) - 40;

  if (c->at_least ? c->found >= c->expected : c->found == c->expected) return 1;
  return growth && !c->at_least && holds_lock(c->name) && c->found == c->expected + growth;
}

static inline int abi_run(const struct abi_check *checks, size_t count) {
  size_t failed = 0;

  for (size_t i = 0; i < count; i++) {
    const struct abi_check *c = &checks[i];

    if (as_recorded(c)) continue;
    failed++;
    printf("%s of %s: expected %s%lld (%s), found %lld\n", c->fact, c->name,
           c->at_least ? "at least " : "", c->expected, c->releases, c->found);
  }
  printf("%zu of %zu checks failed\n", failed, count);
  return failed ? 1 : 0;
}

#endif /* IBVEXP_TESTS_ABI_CHECK_H */
