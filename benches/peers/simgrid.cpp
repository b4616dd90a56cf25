// Runs flows through SimGrid's network model and writes when each finished.
//
//   simgrid PROBLEM FINISHES [together|hosts|flows]
//
// PROBLEM is what `cargo bench -p flowsim --bench peers -- write` writes: the number of links and
// their capacities in bytes per second, the number of hosts, then the flows, each with its two
// hosts, its bytes, the number of its links and their numbers. All flows start at once.
// The model is CM02 with nothing added: no window limit, no cross traffic, no latencies, so that
// its rates are max-min fair; precision as tight as SimGrid takes it.
//
// Who sends is a matter of taste in SimGrid, and decides how long and how much memory it takes: one
// actor that starts every flow and waits for all (`together`), an actor for each host with a mailbox
// for each flow, as an MPI program would be written (`hosts`, the fastest, and what we compare
// with), or two actors for each flow (`flows`; many flows need --cfg=contexts/guard-size:0 and a
// small --cfg=contexts/stack-size).

#include <simgrid/s4u.hpp>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <sys/resource.h>
#include <vector>

namespace sg4 = simgrid::s4u;

struct Flow {
  size_t from;
  size_t to;
  double bytes;
  std::vector<size_t> links;
};

static double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  const std::string who = argc == 4 ? argv[3] : "together";
  if (argc < 3 || (who != "together" && who != "hosts" && who != "flows")) {
    std::cerr << "usage: simgrid PROBLEM FINISHES [together|hosts|flows]\n";
    return 2;
  }
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/weight-S:0");
  sg4::Engine::set_config("maxmin/precision:1e-9");
  sg4::Engine::set_config("surf/precision:1e-12");

  std::ifstream problem(argv[1]);
  size_t link_count;
  size_t host_count;
  size_t flow_count;
  problem >> link_count;
  auto* zone = sg4::create_full_zone("all");
  std::vector<sg4::Link*> links(link_count);
  for (size_t at = 0; at < link_count; ++at) {
    double capacity;
    problem >> capacity;
    links[at] = zone->create_link("link" + std::to_string(at), capacity)->set_latency(0)->seal();
  }
  problem >> host_count >> flow_count;
  std::vector<sg4::Host*> hosts(host_count);
  for (size_t at = 0; at < host_count; ++at)
    hosts[at] = zone->create_host("host" + std::to_string(at), 1e9)->seal();
  std::vector<Flow> flows(flow_count);
  std::map<std::pair<size_t, size_t>, bool> routed;
  for (auto& flow : flows) {
    size_t hops;
    problem >> flow.from >> flow.to >> flow.bytes >> hops;
    flow.links.resize(hops);
    for (auto& link : flow.links)
      problem >> link;
    if (!routed.emplace(std::make_pair(flow.from, flow.to), true).second)
      continue;
    std::vector<sg4::LinkInRoute> route;
    for (size_t link : flow.links)
      route.emplace_back(links[link]);
    zone->add_route(hosts[flow.from]->get_netpoint(), hosts[flow.to]->get_netpoint(), nullptr, nullptr, route, false);
  }
  zone->seal();

  const double began = cpu_seconds();
  std::vector<double> finished(flow_count);
  static char nothing;
  if (who == "together") {
    sg4::Actor::create("all", hosts[0], [&]() {
      std::vector<sg4::CommPtr> comms;
      for (const auto& flow : flows) {
        auto comm = sg4::Comm::sendto_init(hosts[flow.from], hosts[flow.to]);
        comm->set_payload_size(static_cast<uint64_t>(flow.bytes));
        comm->start();
        comms.push_back(comm);
      }
      sg4::Comm::wait_all(comms);
      for (size_t at = 0; at < comms.size(); ++at)
        finished[at] = comms[at]->get_finish_time();
    });
  }
  const auto mailbox = [&](size_t flow) { return sg4::Mailbox::by_name(std::to_string(flow)); };
  const auto bytes = [&](size_t flow) { return static_cast<uint64_t>(flows[flow].bytes); };
  for (size_t at = 0; who == "flows" && at < flow_count; ++at) {
    sg4::Actor::create("from", hosts[flows[at].from], [&, at]() { mailbox(at)->put(&nothing, bytes(at)); });
    sg4::Actor::create("to", hosts[flows[at].to], [&, at]() {
      mailbox(at)->get<char>();
      finished[at] = sg4::Engine::get_clock();
    });
  }
  std::vector<std::vector<size_t>> sends(host_count), receives(host_count);
  for (size_t at = 0; at < flow_count; ++at) {
    sends[flows[at].from].push_back(at);
    receives[flows[at].to].push_back(at);
  }
  for (size_t host = 0; who == "hosts" && host < host_count; ++host) {
    sg4::Actor::create("rank", hosts[host], [&, host]() {
      std::vector<char*> places(receives[host].size());
      std::vector<sg4::CommPtr> comms;
      for (size_t at = 0; at < places.size(); ++at)
        comms.push_back(mailbox(receives[host][at])->get_async<char>(&places[at]));
      for (size_t flow : sends[host])
        comms.push_back(mailbox(flow)->put_async(&nothing, bytes(flow)));
      sg4::Comm::wait_all(comms);
      for (size_t at = 0; at < places.size(); ++at)
        finished[receives[host][at]] = comms[at]->get_finish_time();
    });
  }
  engine.run();
  const double took = cpu_seconds() - began;

  std::ofstream finishes(argv[2]);
  finishes.precision(17);
  for (double finish : finished)
    finishes << finish << "\n";
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%.3f %ld\n", took, usage.ru_maxrss * 1024L);
  return 0;
}
