package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"testing"
)

// Clusters beside each other must not share an address.
func TestAddressesAreDisjoint(t *testing.T) {
	var ranges []netip.Prefix
	for number := range maxClusters {
		n := network{number: number}
		machines, pods := netip.MustParsePrefix(n.machines()), netip.MustParsePrefix(n.pods())
		for _, address := range []string{n.host(), n.controlPlane(), n.node(0), n.node(maxNodes - 1)} {
			if !machines.Contains(netip.MustParseAddr(address)) {
				t.Errorf("cluster %d: %s is not in %s", number, address, machines)
			}
		}
		for index := range maxNodes {
			if own := netip.MustParsePrefix(n.nodePods(index)); !pods.Contains(own.Addr()) || own.Bits() != 24 {
				t.Errorf("cluster %d: pods of node %d are in %s, not in %s", number, index, own, pods)
			}
		}
		for _, own := range []netip.Prefix{machines, pods} {
			if own != own.Masked() {
				t.Errorf("cluster %d: %s is no network", number, own)
			}
			if !netip.MustParsePrefix("198.18.0.0/15").Contains(own.Addr()) {
				t.Errorf("cluster %d: %s is not set aside for tests", number, own)
			}
			for _, other := range ranges {
				if own.Overlaps(other) {
					t.Errorf("cluster %d: %s overlaps %s", number, own, other)
				}
			}
			ranges = append(ranges, own)
		}
	}
}

func TestNetworkInUse(t *testing.T) {
	address := func(text string) net.Addr {
		ip, network, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		network.IP = ip
		return network
	}
	for text, want := range map[string]bool{
		"127.0.0.1/8":   false,
		"10.96.0.1/32":  false,
		"198.18.1.1/32": false,
		"198.18.0.1/32": true,
		"198.18.0.9/15": true,
		"198.19.3.1/24": true,
		"fe80::1/64":    false,
	} {
		if got := (network{}).overlaps([]net.Addr{address("192.168.0.2/24"), address(text)}); got != want {
			t.Errorf("with %s on the host the first network is in use: %t, want %t", text, got, want)
		}
	}
}

func TestCertificates(t *testing.T) {
	ca, err := newAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	parse := func(certificate, key []byte, err error) *x509.Certificate {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	server := parse(ca.issue(pkix.Name{CommonName: "server"}, "kubernetes.default.svc", "10.96.0.1"))
	for _, name := range []string{"kubernetes.default.svc", "10.96.0.1"} {
		if _, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	clientAuth := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := server.Verify(clientAuth); err == nil {
		t.Error("a server's certificate serves as a client's")
	}
	client := parse(ca.issue(pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}))
	if _, err := client.Verify(clientAuth); err != nil {
		t.Errorf("as a client: %v", err)
	}
	if got := client.Subject.Organization; len(got) != 1 || got[0] != "system:nodes" {
		t.Errorf("the client's groups are %v", got)
	}
}
