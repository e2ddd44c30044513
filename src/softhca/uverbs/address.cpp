#include "uverbs/address.h"

#include "firmware/scope.h"

namespace softhca::uverbs {

int check_address(const File &file, const AddressVector &av) {
  return firmware::check_route(file.device(), av);
}

}  // namespace softhca::uverbs
