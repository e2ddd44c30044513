#include "model/capabilities.h"

#include <algorithm>

#include "config/identity.h"

namespace softhca {

namespace {

constexpr CapabilityRow rows[] = {
#define CAPABILITY(name, first, description) \
  {#name, Model::first, &Capabilities::name, description},
#include "config/capabilities.def"
#undef CAPABILITY
};

}  // namespace

std::span<const CapabilityRow> capability_rows() { return rows; }

Capabilities capabilities_of(const DeviceConfig &config) {
  Capabilities caps;
  caps.vendor_part_id = model_identity(config.model).part_id;
  for (const CapabilityRow &row : rows)
    caps.*row.flag = config.model >= row.first && config.hide.count(row.name) == 0;
  // What cannot be had without something else.
  caps.extended_atomics = caps.extended_atomics && caps.atomics;
  caps.cqe_128_compression = caps.cqe_128_compression && caps.cqe_compression;
  caps.dci_streams = caps.dci_streams && caps.dc;
  caps.signature = caps.signature && caps.umr;
  if (!caps.device_memory) caps.max_dm_bytes = 0;
  const bool ethernet =
      std::any_of(config.ports.begin(), config.ports.end(),
                  [](const PortConfig &p) { return p.link == LinkLayer::ethernet; });
  caps.raw_ethernet = caps.raw_ethernet && ethernet;
  caps.path_migration = caps.path_migration &&
                        std::any_of(config.ports.begin(), config.ports.end(),
                                    [](const auto &p) { return p.link == LinkLayer::infiniband; });
  // The command QP of such an SRQ has a path without GRH on port 1 (libmlx5),
  // which RoCE does not have.
  caps.tag_matching = caps.tag_matching && config.ports.front().link == LinkLayer::infiniband;
  caps.striding_srq = caps.striding_srq && caps.tag_matching;
  for (bool Capabilities::*flag : {&Capabilities::striding_rq, &Capabilities::tso,
                                   &Capabilities::multi_packet_send, &Capabilities::packet_pacing})
    caps.*flag = caps.*flag && caps.raw_ethernet;
  return caps;
}

}  // namespace softhca
