package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// startServer runs a server on ports that are free, and returns where reviews and
// where metrics are served. stop returns what Run did.
func startServer(t *testing.T, a *api) (reviews, status string, stop func() error) {
	t.Helper()
	s := New(hookConfig, a, NewMetrics())
	addresses := make(chan string, 2)
	s.listen = func(network, address string) (net.Listener, error) {
		listener, err := net.Listen(network, address)
		if err == nil {
			addresses <- listener.Addr().String()
		}
		return listener, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return <-addresses, <-addresses, func() error { cancel(); return <-ended }
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(body)
}

func TestServer(t *testing.T) {
	a := newAPI()
	reviews, status, stop := startServer(t, a)
	must(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		code, _ := get(t, "http://"+status+"/readyz")
		return code == http.StatusOK, nil
	}))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.configuration(t).Webhooks[0].ClientConfig.CABundle)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "hook.gpus.svc"}, ForceAttemptHTTP2: true,
	}}
	body := marshal(t, review(resourceClaims, claim(entry(driver, negativeLimit))))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+reviews+Path, bytes.NewReader([]byte(body)))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	must(t, err)
	answer, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 || !strings.Contains(string(answer), `"allowed":false`) {
		t.Errorf("%s %s: %s", response.Proto, response.Status, answer)
	}
	client.CloseIdleConnections()
	if code, body := get(t, "http://"+status+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	if code, body := get(t, "http://"+status+"/metrics"); code != http.StatusOK || !strings.Contains(body, `apportion_webhook_review_duration_seconds_count{resource="resourceclaims",result="denied"} 1`) {
		t.Errorf("/metrics: %d %s", code, body)
	}
	if err := stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestServerSaysWhyItIsNotReady(t *testing.T) {
	a := newAPI()
	a.setFail(errors.New("the API server is away"))
	reviews, status, stop := startServer(t, a)
	if code, body := get(t, "http://"+status+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no certificate yet") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, _ := get(t, "http://"+status+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d; a restart would not help", code)
	}
	connection, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", reviews)
	if err == nil {
		t.Error("a connection without a certificate", connection.Close())
	}
	if err := stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestServerThatCannotListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	for _, change := range []func(*Config){
		func(c *Config) { c.Address = taken.Addr().String() },
		func(c *Config) { c.MetricsAddress = taken.Addr().String() },
	} {
		c := hookConfig
		change(&c)
		if err := New(c, newAPI(), NewMetrics()).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("error %v", err)
		}
	}
}
