package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/ownership"
	ownershipserver "apportion.dev/apportion/pkg/ownership/server"
)

// running is an exporter that runs.
type running struct {
	address string
	end     func() error
}

// optionsFor are the options of an exporter that reads a machine's GPUs.
func optionsFor(m *fakegpu.Machine) *options {
	o := defaultOptions()
	o.library, o.driver.Root = m.NVML(), m.DriverRoot()
	return o
}

func start(t *testing.T, o *options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	o.address = "localhost:0"
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	o.listening = func(a net.Addr) { address <- a }
	if err := o.Complete(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- o.Run(ctx) }()
	p := &running{}
	p.end = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := p.end(); err != nil {
			t.Errorf("the exporter ended with %v", err)
		}
	})
	select {
	case a := <-address:
		p.address = a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	return p
}

func (p *running) get(t *testing.T, client *http.Client, url, password string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if password != "" {
		request.SetBasicAuth("prometheus", password)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// until scrapes until the metrics are as wanted.
func (p *running) until(t *testing.T, what string, wanted func(line string) bool) {
	t.Helper()
	body := ""
	for t.Context().Err() == nil {
		_, body = p.get(t, http.DefaultClient, "http://"+p.address+"/metrics", "")
		if slices.ContainsFunc(strings.Split(body, "\n"), wanted) {
			return
		}
	}
	t.Errorf("there never was %s:\n%s", what, body)
}

// driver is the ownership service in a folder of its own, as the kubelet plugin's.
func driver(t *testing.T) (*ownershipserver.Server, string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "own") // A test's own folder has too long a path.
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(folder, "gpu.example.com", "ownership"), 0o755); err != nil {
		t.Fatal(err)
	}
	server := ownershipserver.New()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(ctx, filepath.Join(folder, "gpu.example.com", "ownership", "ownership.sock"))
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, os.RemoveAll(folder)); err != nil {
			t.Error(err)
		}
	})
	return server, folder
}

func holder(uuid, pod string) ownership.Owner {
	return ownership.Owner{
		Device:  ownership.Device{Driver: "gpu.example.com", Pool: "node-a", Name: "gpu-0", Type: "gpu", UUID: uuid, Fraction: 1},
		Claim:   ownership.ClaimRef{Namespace: "team", Name: pod, UID: types.UID("claim-" + pod)},
		Request: "gpu", Since: time.Now().UTC(),
		Consumers: []ownership.Consumer{{
			Namespace: "team", Name: pod, UID: types.UID(pod), State: ownership.Running,
			Containers: []ownership.Container{{Name: "main", Kind: ownership.RegularContainer, ID: strings.Repeat("a", 64)}},
		}},
	}
}

func TestTheGPUsAreExportedWithTheirOwners(t *testing.T) {
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: []string{"h100-sxm5-80gb", "t4"}})
	if err != nil {
		t.Fatal(err)
	}
	summary, err := m.Summary()
	if err != nil {
		t.Fatal(err)
	}
	service, folder := driver(t)
	service.Set([]ownership.Owner{holder(summary.GPUs[0].UUID, "a")}, "", time.Now())

	o := optionsFor(m)
	o.driver.Name, o.driver.PluginsDir, o.nodeName, o.interval = "gpu.example.com", folder, "node-a", time.Hour
	p := start(t, o)
	series := func(name string, parts ...string) func(string) bool {
		return func(line string) bool {
			return strings.HasPrefix(line, name+"{") && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
		}
	}
	p.until(t, "the first owner", series("DCGM_FI_DEV_GPU_TEMP", summary.GPUs[0].UUID, `namespace="team"`, `pod="a"`, `container="main"`, `Hostname="node-a"`))
	p.until(t, "the other GPU", series("DCGM_FI_DEV_GPU_TEMP", summary.GPUs[1].UUID))
	// There is no other sample for an hour.
	service.Set([]ownership.Owner{holder(summary.GPUs[0].UUID, "b")}, "", time.Now())
	p.until(t, "the second owner", series("DCGM_FI_DEV_GPU_TEMP", summary.GPUs[0].UUID, `pod="b"`))
	p.until(t, "what the first was charged", series("apportion_allocated_gpu_seconds_total", `pod="a"`))
	if code, body := p.get(t, http.DefaultClient, "http://"+p.address+"/healthz", ""); code != http.StatusOK || body != "ok\n" {
		t.Errorf("health: %d %q", code, body)
	}
	if code, _ := p.get(t, http.DefaultClient, "http://"+p.address+"/", ""); code != http.StatusNotFound {
		t.Errorf("status of / is %d", code)
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

func TestScrapesWithTLSAndAPassword(t *testing.T) {
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: []string{"t4"}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, roots := selfSigned(t)
	o := optionsFor(m)
	o.driver.PluginsDir = "/nonexistent"
	// The password is "secret".
	o.webConfig = file(t, "web.yml", fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s}\nbasic_auth_users: {prometheus: %s}\n",
		certificate, key, "$2a$04$hqXVG/BYliB9nwu8j.G0T.aKMmmg958ljrnMuwlcEd3zzucICEkYO"))
	p := start(t, o)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "exporter"}}}
	defer client.CloseIdleConnections()
	for password, want := range map[string]int{"secret": http.StatusOK, "wrong": http.StatusUnauthorized, "": http.StatusUnauthorized} {
		if code, _ := p.get(t, client, "https://"+p.address+"/metrics", password); code != want {
			t.Errorf("password %q: status %d, want %d", password, code, want)
		}
	}
}

func TestAnAddressInUseIsSaid(t *testing.T) {
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: []string{"t4"}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	o := optionsFor(m)
	o.address = listener.Addr().String()
	if err := o.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := o.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--web.listen-address") {
		t.Error(err)
	}
}

// selfSigned makes a certificate for the name "exporter".
func selfSigned(t *testing.T) (certificate, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"exporter"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots.AppendCertsFromPEM(text)
	return file(t, "tls.crt", string(text)), file(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER}))), roots
}
