#include "model/counters.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/limits.h"
#include "base/log.h"
#include "base/memory_calls.h"
#include "config/config.h"
#include "config/identity.h"
#include "model/device.h"
#include "model/eth_queue.h"
#include "model/packets.h"
#include "wire/directory.h"

namespace softhca {

namespace {

// The part of a process: its ports.
using Part = std::array<PortCounters<Count>, max_devices * max_ports>;
constexpr u64 part_bytes = align_up(sizeof(Part), page_size);

Part *g_shared;

std::string file_of_host() {
  return fabric_directory(config().fabric) + "/counters-" + std::to_string(config().host);
}

Part &part() {
  static auto &own = *new Part;
  return g_shared != nullptr ? *g_shared : own;
}

constexpr size_t index_of(u32 device, u32 port) { return device * max_ports + port - 1; }
PortCounters<Count> &counters_of(const Device &device, u32 port) {
  return part()[index_of(device.number, port)];
}

void count_traffic(PortCounters<Count> &port, TrafficKind kind, const PacketHeader &h) {
  const Traffic traffic = traffic_of(h);
  port.packets(kind).add(traffic.packets);
  port.octets(kind).add(traffic.octets);
}

// The kind among those that were sent.
u32 kind_of(const PacketHeader &h, const u8 *frame) {
  constexpr u8 broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  TrafficKind kind = TrafficKind::sent_rdma;
  if (h.kind == PacketKind::datagram && h.dst_qpn == multicast_qpn)
    kind = TrafficKind::sent_rdma_multicast;
  else if (h.kind == PacketKind::ethernet)
    kind = std::memcmp(frame, broadcast, 6) == 0 ? TrafficKind::sent_broadcast_frames
           : (frame[0] & 1) != 0                 ? TrafficKind::sent_multicast_frames
                                                 : TrafficKind::sent_frames;
  return static_cast<u32>(kind);
}

}  // namespace

void counters_share(u16 slot) {
  const std::string name = file_of_host();
  const u64 begin = slot * part_bytes;
  const FileSizeErrors size_errors;
  void *mapped = MAP_FAILED;
  const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  // The parts of unused slots in front are holes.
  const int error = fd < 0 ? errno : posix_fallocate(fd, static_cast<off_t>(begin), part_bytes);
  errno = error;
  if (error == 0)
    mapped = calls::mmap(nullptr, part_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                         static_cast<off_t>(begin));
  if (mapped != MAP_FAILED) g_shared = static_cast<Part *>(mapped);
  else
    SOFTHCA_LOG(info, "%s: %s%s; sysfs does not show what this process counts", name.c_str(),
                strerror(errno), limit_behind(errno, name.c_str()).text);
  if (fd >= 0) close(fd);
}

void counters_forget() {
  if (g_shared != nullptr) calls::munmap(g_shared, part_bytes);
  g_shared = nullptr;
}

QueueCounters<Count> &queue_counters(const Qp &qp) {
  if (qp.counters) return qp.counters->counters;
  return counters_of(*qp.device, std::max<u8>(qp.attr.port, 1)).queues;
}

QueueCounters<Count> &queue_counters(const Wq &wq) {
  return wq.counters ? wq.counters->counters : counters_of(*wq.device, 1).queues;
}

void count_error(QueueCounters<Count> &set, Syndrome s, bool responder) {
  using enum QueueCounter;
  const auto add = [&](QueueCounter c) { set[c].add(1); };
  if (s == Syndrome::flush) return add(responder ? resp_cqe_flush_error : req_cqe_flush_error);
  add(responder ? resp_cqe_error : req_cqe_error);
  switch (s) {
    case Syndrome::local_length:
      return add(responder ? resp_local_length_error : req_local_length_error);
    case Syndrome::local_qp_op: return add(responder ? resp_local_qp_error : local_operation_error);
    case Syndrome::local_protection:
      return add(responder ? resp_local_protection : req_local_protection);
    case Syndrome::mw_bind: return add(req_mw_binding);
    case Syndrome::bad_response: return add(req_bad_response);
    case Syndrome::remote_invalid_request: return add(req_remote_invalid_request);
    case Syndrome::remote_access: return add(req_remote_access_errors);
    case Syndrome::remote_operation: return add(req_remote_operation_errors);
    case Syndrome::retry_exceeded: return add(req_transport_retries_exceeded);
    case Syndrome::rnr_retry_exceeded: return add(req_rnr_retries_exceeded);
    default: return;
  }
}

void count_sent(const Device &device, const PacketHeader &h, const u8 *frame) {
  count_traffic(counters_of(device, h.port), static_cast<TrafficKind>(kind_of(h, frame)), h);
}

void count_received(const Device &device, u32 port, const PacketHeader &h, const u8 *frame) {
  constexpr u32 first = static_cast<u32>(TrafficKind::received_rdma);
  count_traffic(counters_of(device, port), static_cast<TrafficKind>(first + kind_of(h, frame)), h);
}

PortCounters<u64> port_counters(u32 device, u32 port) {
  PortCounters<u64> sum;
  const size_t index = index_of(device, port);
  const int fd = open(file_of_host().c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return sum;
  PortCounters<u64> one;
  for (u64 at = index * sizeof one;
       pread(fd, &one, sizeof one, static_cast<off_t>(at)) == sizeof one; at += part_bytes) {
    for (size_t i = 0; i < one.traffic.size(); ++i) sum.traffic[i] += one.traffic[i];
    for (size_t i = 0; i < one.queues.all.size(); ++i) sum.queues.all[i] += one.queues.all[i];
  }
  close(fd);
  return sum;
}

}  // namespace softhca
