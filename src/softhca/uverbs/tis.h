// Transport domains and transport interface sends: which senders see whose
// loopback traffic. Here they have numbers and are counted, no more: what
// comes back to its sender is the frame's and the QP's to say (eth_send.cpp).
#pragma once

#include <memory>

#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

struct TransportDomain {
  TransportDomain();
  ~TransportDomain();
  u32 number;
};

struct Tis {
  explicit Tis(std::shared_ptr<TransportDomain>);
  std::shared_ptr<TransportDomain> domain;
  u32 number;
};

// That of a raw packet QP with a send queue, in the domain of its context.
std::shared_ptr<Tis> context_tis(File &);

// DEVX_OBJ/CREATE of either.
int transport_domain_create(File &, Attrs &, Command &);
int tis_create(File &, Attrs &, Command &);
// QUERY_TIS through the handle of `o`: a TIS, or a QP that has one.
int tis_query(const Attrs &, Command &, const Object *o);

}  // namespace softhca::uverbs
