// The server's side of vfio-user: what a virtual machine monitor sends about one function.
#pragma once

#include <vector>

#include "firmware/guest_memory.h"
#include "pci/function.h"

namespace softhca::pci {

// Serves one connection until it ends. 0, or errno of a socket that failed.
int serve(int socket, Function &, firmware::GuestMemory &);

}  // namespace softhca::pci
