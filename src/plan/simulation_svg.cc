// ToSvg: the timeline of simulation_report.h as a picture.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "plan/simulation_report.h"

namespace tandem {
namespace {

// Pixels.
constexpr double kLeft = 70;
constexpr double kWidth = 860;
constexpr double kTop = 40;
constexpr double kLane = 34;
constexpr double kBox = 20;
constexpr double kAxis = 34;
constexpr size_t kMaxLanes = 200;

std::string Escaped(const std::string& text) {
  std::string out;
  for (char c : text.substr(0, 10)) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      default: out += c >= 0x20 && c < 0x7f ? c : '?';
    }
  }
  return out;
}

// 1, 2 or 5 times a power of ten, about an eighth of `span`.
double TickStep(double span) {
  const double raw = std::max(span / 8, 1e-9);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (double m : {1.0, 2.0, 5.0})
    if (m * power >= raw) return m * power;
  return 10 * power;
}

class Picture {
 public:
  Picture(const Scenario& scenario, const Simulation& simulation)
      : scenario_(scenario),
        simulation_(simulation),
        lanes_(std::min(simulation.requests.size(), kMaxLanes)),
        scale_(kWidth / std::max(1.0, static_cast<double>(simulation.finish))) {}

  std::string Draw() {
    const double height = Bottom() + kAxis + 24;
    fmt::format_to(to_,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
                   "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n",
                   kLeft + kWidth + 20, height);
    out_ += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    fmt::format_to(to_,
                   "<text x=\"{}\" y=\"22\" font-size=\"14\">{}: {:.1f} ms, {} steps, largest "
                   "gap {:.1f} ms</text>\n",
                   kLeft, NameOf(scenario_.policy), Ms(simulation_.finish), simulation_.iterations,
                   Ms(simulation_.max_itl));
    Axis();
    for (size_t i = 0; i < lanes_; ++i) Lane(i);
    for (const SimulatedStep& step : simulation_.steps) Step(step);
    for (size_t i = 0; i < lanes_; ++i) Deliveries(i);
    Legend(height - 10);
    return std::move(out_) + "</svg>\n";
  }

 private:
  static double Ms(TimeNs ns) { return static_cast<double>(ns) / kNsPerMs; }
  double X(TimeNs ns) const { return kLeft + static_cast<double>(ns) * scale_; }
  double Y(size_t lane) const { return kTop + static_cast<double>(lane) * kLane; }
  double Bottom() const { return Y(lanes_); }

  void Axis() {
    const double step = TickStep(Ms(simulation_.finish));
    for (double ms = 0; ms <= Ms(simulation_.finish) + 1e-9; ms += step) {
      const double x = kLeft + ms * kNsPerMs * scale_;
      fmt::format_to(to_,
                     "<path d=\"M{0:.1f} {1}V{2:.1f}\" stroke=\"#ddd\"/>"
                     "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\" fill=\"#555\">"
                     "{4:g} ms</text>\n",
                     x, kTop, Bottom(), Bottom() + 16, ms);
    }
  }

  void Lane(size_t i) {
    const SimulatedRequest& r = simulation_.requests[i];
    const double middle = Y(i) + kBox / 2;
    fmt::format_to(to_, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8,
                   middle + 4, Escaped(scenario_.requests[i].id));
    const TimeNs arrival = scenario_.requests[i].arrival;
    const TimeNs end = r.outputs > 0 ? std::max(r.finished, arrival) : arrival;
    fmt::format_to(to_,
                   "<path d=\"M{0:.1f} {1:.1f}H{2:.1f}\" stroke=\"#999\"/>"
                   "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"3\" fill=\"#999\"/>\n",
                   X(arrival), middle, X(end));
  }

  void Step(const SimulatedStep& step) {
    for (const SimulatedRow& row : step.rows) {
      if (static_cast<size_t>(row.request) >= lanes_) continue;
      fmt::format_to(to_,
                     "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
                     "stroke=\"white\" stroke-width=\"0.5\"/>\n",
                     X(step.start), Y(static_cast<size_t>(row.request)),
                     static_cast<double>(step.end - step.start) * scale_, kBox,
                     row.prefill ? "#e08a3c" : "#4a7fb5");
    }
  }

  void Deliveries(size_t i) {
    for (TimeNs at : simulation_.requests[i].deliveries) {
      fmt::format_to(to_, "<path d=\"M{:.2f} {:.1f}v6\" stroke=\"#222\"/>\n", X(at), Y(i) + kBox);
    }
  }

  void Legend(double y) {
    fmt::format_to(to_,
                   "<rect x=\"{0}\" y=\"{1:.1f}\" width=\"12\" height=\"12\" fill=\"#e08a3c\"/>"
                   "<text x=\"{2}\" y=\"{3:.1f}\">prompt</text>"
                   "<rect x=\"{4}\" y=\"{1:.1f}\" width=\"12\" height=\"12\" fill=\"#4a7fb5\"/>"
                   "<text x=\"{5}\" y=\"{3:.1f}\">decode</text>"
                   "<path d=\"M{6} {1:.1f}v10\" stroke=\"#222\"/>"
                   "<text x=\"{7}\" y=\"{3:.1f}\">token delivered</text>"
                   "<path d=\"M{8} {9:.1f}h16\" stroke=\"#999\"/>"
                   "<circle cx=\"{8}\" cy=\"{9:.1f}\" r=\"3\" fill=\"#999\"/>"
                   "<text x=\"{10}\" y=\"{3:.1f}\">arrival, waiting</text>\n",
                   kLeft, y - 10, kLeft + 17, y, kLeft + 80, kLeft + 97, kLeft + 162, kLeft + 170,
                   kLeft + 280, y - 4, kLeft + 303);
  }

  const Scenario& scenario_;
  const Simulation& simulation_;
  const size_t lanes_;
  const double scale_;
  std::string out_;
  std::back_insert_iterator<std::string> to_ = std::back_inserter(out_);
};

}  // namespace

std::string ToSvg(const Scenario& scenario, const Simulation& simulation) {
  return Picture(scenario, simulation).Draw();
}

}  // namespace tandem
