// The audit as one HTML file: the template with the report as JSON in it.
#include "tool/audit/outputs.h"

#include "report_template.h"

#include <string>

namespace ibvexp::audit {

std::string as_html(const Report &report) {
  constexpr std::string_view mark = "@REPORT@";
  std::string data = as_json(report);
  // "</script" would end the element the data is in, "<!--" would hide its end.
  for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos; at += 6)
    data.replace(at, 1, "\\u003c");
  std::string out(report_template);
  out.replace(out.find(mark), mark.size(), data);
  return out;
}

}  // namespace ibvexp::audit
