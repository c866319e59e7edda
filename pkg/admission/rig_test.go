package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var hookConfig = Config{
	DriverName: driver, Namespace: "gpus", ServiceName: "hook", SecretName: "certificates", ConfigurationName: "hooks",
	Address: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0", CertificateLifetime: lifetime,
}

var (
	secretsResource        = corev1.SchemeGroupVersion.WithResource("secrets")
	configurationsResource = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
)

// api is client-go's fake of an API server, with the versions of objects that the
// fake has not: who writes over another version than the present one has a conflict.
type api struct {
	*fake.Clientset
	mutex   sync.Mutex
	version int
	// fail, if not nil, is what every call but those of informers ends with.
	fail error
	// writes counts the writes of each resource.
	writes map[string]int
}

func newAPI() *api {
	service := func(name string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "gpus", Name: name}}
	}
	a := &api{
		Clientset: fake.NewSimpleClientset(
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "certificates", ResourceVersion: "0", Labels: map[string]string{"keep": "me"}}},
			&admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "hooks", ResourceVersion: "0"},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{
					{Name: "claims.hook", ClientConfig: service("hook")},
					{Name: "theirs", ClientConfig: service("other")},
					{Name: "classes.hook", ClientConfig: service("hook")},
					{Name: "url", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://example.com")}},
				},
			},
		),
		writes: map[string]int{},
	}
	a.PrependReactor("*", "*", a.react)
	return a
}

func (a *api) react(action clienttesting.Action) (bool, runtime.Object, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if verb := action.GetVerb(); a.fail != nil && verb != "list" && verb != "watch" {
		return true, nil, a.fail
	}
	switch action := action.(type) {
	case clienttesting.UpdateAction:
		return a.write(action, func(runtime.Object) (runtime.Object, error) { return action.GetObject(), nil })
	case clienttesting.PatchAction:
		return a.write(action, func(old runtime.Object) (runtime.Object, error) {
			before, err := json.Marshal(old)
			if err != nil {
				return nil, err
			}
			after, err := strategicpatch.StrategicMergePatch(before, action.GetPatch(), old)
			if err != nil {
				return nil, err
			}
			patched := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			return patched, json.Unmarshal(after, patched)
		})
	}
	return false, nil, nil
}

func (a *api) write(action clienttesting.Action, change func(runtime.Object) (runtime.Object, error)) (bool, runtime.Object, error) {
	named := map[schema.GroupVersionResource]string{secretsResource: "certificates", configurationsResource: "hooks"}[action.GetResource()]
	old, err := a.Tracker().Get(action.GetResource(), action.GetNamespace(), named)
	if err != nil {
		return true, nil, err
	}
	next, err := change(old)
	if err != nil {
		return true, nil, err
	}
	next = next.DeepCopyObject()
	if version(next) != version(old) {
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), named, errors.New("changed by another"))
	}
	a.version++
	a.writes[action.GetResource().Resource]++
	next.(metav1.Object).SetResourceVersion(strconv.Itoa(a.version))
	return true, next, a.Tracker().Update(action.GetResource(), next, action.GetNamespace())
}

func version(o runtime.Object) string { return o.(metav1.Object).GetResourceVersion() }

func (a *api) setFail(err error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.fail = err
}

func (a *api) written(resource string) int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.writes[resource]
}

func (a *api) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret, err := a.Tracker().Get(secretsResource, "gpus", "certificates")
	if err != nil {
		t.Fatal(err)
	}
	return secret.(*corev1.Secret).DeepCopy()
}

func (a *api) configuration(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	configuration, err := a.Tracker().Get(configurationsResource, "", "hooks")
	if err != nil {
		t.Fatal(err)
	}
	return configuration.(*admissionregistrationv1.ValidatingWebhookConfiguration).DeepCopy()
}

// replica is a keeper that runs.
type replica struct {
	*keeper
	end func()
}

// startReplica starts a keeper in the bubble of a synctest, and waits until it has
// done what is to be done. It ends with the test.
func startReplica(t *testing.T, a *api) *replica {
	t.Helper()
	r := startUnwaited(t, a)
	synctest.Wait()
	return r
}

func startUnwaited(t *testing.T, a *api) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := newKeeper(hookConfig, a, NewMetrics())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(ctx)
	}()
	r := &replica{keeper: k, end: func() { cancel(); <-done }}
	t.Cleanup(r.end)
	return r
}

// call opens a connection as the API server does with what the configuration says
// now, and returns the certificate that it got.
func (r *replica) call(t *testing.T, a *api) (*x509.Certificate, error) {
	t.Helper()
	var bundle []byte
	for _, webhook := range a.configuration(t).Webhooks {
		if webhook.Name == "claims.hook" {
			bundle = webhook.ClientConfig.CABundle
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	near, far := net.Pipe()
	server := tls.Server(far, &tls.Config{GetCertificate: r.certificate})
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(server.HandshakeContext(t.Context()), far.Close()) }()
	client := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "hook.gpus.svc"})
	err := client.HandshakeContext(t.Context())
	if closed := near.Close(); err == nil && closed != nil {
		return nil, fmt.Errorf("close: %w", closed)
	}
	<-ended
	if err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

func (r *replica) mustCall(t *testing.T, a *api) *x509.Certificate {
	t.Helper()
	certificate, err := r.call(t, a)
	if err != nil {
		t.Fatalf("at %s: %v", time.Now(), err)
	}
	return certificate
}
