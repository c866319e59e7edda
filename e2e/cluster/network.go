package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The cluster's addresses. Those of machines and pods are in 198.18.0.0/15, which
// RFC 2544 sets aside for tests of network devices and no network routes; each
// cluster has its part, so that several live on one host, and the host reaches them.
// Those of services are seen on the cluster's own machines only.
const (
	serviceRange     = "10.96.0.0/16"
	apiServerAddress = "10.96.0.1" // the first of serviceRange: the service "kubernetes"
	dnsAddress       = "10.96.0.10"
	clusterDomain    = "cluster.local"

	maxClusters = 8
	maxNodes    = 32 // of a cluster
)

// network is the layout of the addresses of cluster number n. The control plane's
// machine is the router: one link to the host, one to each node.
type network struct{ number int }

func (n network) machine(last int) string {
	return netip.AddrFrom4([4]byte{198, 18, byte(n.number), byte(last)}).String()
}

func (n network) machines() string     { return n.machine(0) + "/24" }
func (n network) host() string         { return n.machine(1) }
func (n network) controlPlane() string { return n.machine(2) }

func (n network) node(index int) string { return n.machine(10 + index) }

func (n network) pods() string { return fmt.Sprintf("198.19.%d.0/19", maxNodes*n.number) }
func (n network) nodePods(index int) string {
	return fmt.Sprintf("198.19.%d.0/24", maxNodes*n.number+index)
}

func (n network) hostLink() string { return fmt.Sprintf("apportion%d", n.number) }

// freeNetwork returns the first layout that collides with nothing on the host.
func freeNetwork() (network, error) {
	taken, err := net.InterfaceAddrs()
	if err != nil {
		return network{}, fmt.Errorf("list the host's addresses: %w", err)
	}
	for number := range maxClusters {
		n := network{number: number}
		if _, err := net.InterfaceByName(n.hostLink()); err == nil {
			continue
		}
		if !n.overlaps(taken) {
			return n, nil
		}
	}
	return network{}, fmt.Errorf("find addresses for the cluster: all of its %d ranges in 198.18.0.0/15 are in use on this host", maxClusters)
}

func (n network) overlaps(taken []net.Addr) bool {
	for _, own := range []string{n.machines(), n.pods()} {
		for _, address := range taken {
			prefix, err := netip.ParsePrefix(address.String())
			if err == nil && prefix.Overlaps(netip.MustParsePrefix(own)) {
				return true
			}
		}
	}
	return false
}

// connectControlPlane links the control plane's machine with the host and gives it
// the API server's address.
func (n network) connectControlPlane(m machine) error {
	host, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer host.Close()
	err = m.inside(func() error {
		if err := startLoopback(apiServerAddress); err != nil {
			return err
		}
		if err := addVeth("host", n.hostLink(), host); err != nil {
			return err
		}
		if err := configure("host", n.controlPlane(), n.host()); err != nil {
			return err
		}
		return enableForwarding()
	})
	if err != nil {
		return fmt.Errorf("set up the network of %s: %w", m.name, err)
	}
	if err := configure(n.hostLink(), n.host(), n.controlPlane()); err != nil {
		return fmt.Errorf("set up the host's link to the cluster: %w", err)
	}
	for _, destination := range []string{n.machines(), n.pods()} {
		if err := addRoute(n.hostLink(), destination, n.controlPlane()); err != nil {
			return fmt.Errorf("set up the host's route to the cluster: %w", err)
		}
	}
	return nil
}

// connectNode links the machine of node number index with the control plane's.
func (n network) connectNode(controlPlane, m machine, index int) error {
	space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", m.holder.pid()))
	if err != nil {
		return fmt.Errorf("set up the network of %s: %w", m.name, err)
	}
	defer space.Close()
	link := fmt.Sprintf("node%d", index)
	err = controlPlane.inside(func() error {
		// A link of a machine that ended a moment ago may still be there.
		if err := removeLink(link); err != nil {
			return err
		}
		if err := addVeth(link, "eth0", space); err != nil {
			return err
		}
		return configure(link, n.controlPlane(), n.node(index))
	})
	if err == nil {
		err = m.inside(func() error {
			if err := startLoopback(""); err != nil {
				return err
			}
			if err := configure("eth0", n.node(index), n.controlPlane()); err != nil {
				return err
			}
			if err := addRoute("eth0", "0.0.0.0/0", n.controlPlane()); err != nil {
				return err
			}
			return enableForwarding()
		})
	}
	if err == nil {
		err = controlPlane.inside(func() error { return addRoute(link, n.nodePods(index), n.node(index)) })
	}
	if err != nil {
		return fmt.Errorf("set up the network of %s: %w", m.name, err)
	}
	return nil
}

// startLoopback sets the loopback interface up, with one more address if given.
func startLoopback(address string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if address != "" {
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: single(address)}); err != nil {
			return fmt.Errorf("add %s to the loopback interface: %w", address, err)
		}
	}
	return netlink.LinkSetUp(lo)
}

// addVeth makes a pair of interfaces: name here, peer in another network namespace.
func addVeth(name, peer string, space *os.File) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	pair := &netlink.Veth{LinkAttrs: attributes, PeerName: peer, PeerNamespace: netlink.NsFd(space.Fd())}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("make the interfaces %s and %s: %w", name, peer, err)
	}
	return nil
}

// configure gives an interface its address and that of the other end, and sets it up.
func configure(name, address, peer string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", name, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: single(address), Peer: single(peer)}); err != nil {
		return fmt.Errorf("add %s to %s: %w", address, name, err)
	}
	return netlink.LinkSetUp(link)
}

func addRoute(name, destination, gateway string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", name, err)
	}
	_, to, err := net.ParseCIDR(destination)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Gw: net.ParseIP(gateway)}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("add the route to %s by %s: %w", destination, name, err)
	}
	return nil
}

// removeLink removes an interface; it is no error if there is none.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	} else if err != nil {
		return fmt.Errorf("find the interface %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the interface %s: %w", name, err)
	}
	return nil
}

// enableForwarding makes this network namespace a router; the host's is untouched.
func enableForwarding() error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func single(address string) *net.IPNet {
	return &net.IPNet{IP: net.ParseIP(address).To4(), Mask: net.CIDRMask(32, 32)}
}
