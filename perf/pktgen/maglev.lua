-- Flows to one vip for Pktgen-DPDK: 131 072 of them, then `maglev bench zeroloss --source pktgen-dpdk` drives rates.
-- NOT RUN YET, see README.md. Set the four addresses, load with -f maglev.lua.

package.path = package.path .. ";?.lua;test/?.lua;app/?.lua;"
require "Pktgen"

local vip = "192.0.2.1"
local vip_port = 80
local node_mac = "02:00:00:00:00:02" -- of the node's port, or of the router before it
local client_net = "198.18.0."

pktgen.screen("off")
pktgen.reset("0")
pktgen.set("0", "count", 0)
pktgen.set("0", "burst", 32)
pktgen.set_type("0", "ipv4")
pktgen.set_proto("0", "udp")
pktgen.range.ip_proto("0", "udp")

pktgen.range.dst_mac("0", "start", node_mac)
pktgen.range.dst_ip("0", "start", vip)
pktgen.range.dst_ip("0", "inc", "0.0.0.0")
pktgen.range.dst_ip("0", "min", vip)
pktgen.range.dst_ip("0", "max", vip)
pktgen.range.dst_port("0", "start", vip_port)
pktgen.range.dst_port("0", "inc", 0)
pktgen.range.dst_port("0", "min", vip_port)
pktgen.range.dst_port("0", "max", vip_port)

-- 127 addresses by 1024 ports, less some: the two counters step together, and their lengths have no common divisor.
pktgen.range.src_ip("0", "start", client_net .. "1")
pktgen.range.src_ip("0", "inc", "0.0.0.1")
pktgen.range.src_ip("0", "min", client_net .. "1")
pktgen.range.src_ip("0", "max", client_net .. "127")
pktgen.range.src_port("0", "start", 1024)
pktgen.range.src_port("0", "inc", 1)
pktgen.range.src_port("0", "min", 1024)
pktgen.range.src_port("0", "max", 2055)

for _, key in ipairs({ "start", "min", "max" }) do
	pktgen.range.pkt_size("0", key, 64)
	pktgen.range.ttl("0", key, 64)
end
pktgen.range.pkt_size("0", "inc", 0)
pktgen.range.ttl("0", "inc", 0)
pktgen.set_range("0", "on")
