package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

const (
	// recheck is the longest time between two looks at the certificates. Timers
	// stand still while a machine is suspended, and certificates do not.
	recheck = 12 * time.Hour
	// callTimeout is for all calls to the API server of one attempt.
	callTimeout = 30 * time.Second
)

// keeper keeps the certificates valid: in the Secret, in the webhook's
// configuration and in this process. Every replica has one, and no one leads: each
// goes by what the API server has, and writes only over the version that it read.
type keeper struct {
	config  Config
	issuer  issuer
	client  kubernetes.Interface
	metrics *Metrics

	current atomic.Pointer[tls.Certificate]
	// published is whether this replica has ever seen that the API server knows
	// the authority of its certificate.
	published atomic.Bool
	wake      chan struct{}
}

func newKeeper(c Config, client kubernetes.Interface, m *Metrics) *keeper {
	return &keeper{
		config: c, client: client, metrics: m, wake: make(chan struct{}, 1),
		issuer: issuer{name: c.ServiceName + "." + c.Namespace + ".svc", lifetime: c.CertificateLifetime},
	}
}

// certificate is what a TLS server asks for each connection.
func (k *keeper) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := k.current.Load(); pair != nil {
		return pair, nil
	}
	return nil, errors.New("the webhook has no certificate yet")
}

// ready is an error while the API server cannot call this replica.
func (k *keeper) ready() error {
	switch {
	case k.current.Load() == nil:
		return errors.New("there is no certificate yet")
	case !k.published.Load():
		return fmt.Errorf("the authority is not in the ValidatingWebhookConfiguration %s yet", k.config.ConfigurationName)
	}
	return nil
}

// run keeps the certificates until ctx ends: it acts when one of the two objects
// changes, when a certificate is due, and again after an error.
func (k *keeper) run(ctx context.Context) {
	named := func(name string) func(*metav1.ListOptions) {
		// The role of the webhook allows these two objects only.
		return func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
	}
	informers := []cache.SharedIndexInformer{
		coreinformers.NewFilteredSecretInformer(k.client, k.config.Namespace, 0, cache.Indexers{}, named(k.config.SecretName)),
		admissioninformers.NewFilteredValidatingWebhookConfigurationInformer(k.client, 0, cache.Indexers{}, named(k.config.ConfigurationName)),
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, informer := range informers {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { k.look() },
			UpdateFunc: func(any, any) { k.look() },
			DeleteFunc: func(any) { k.look() },
		})
		if err != nil { // only an informer that was stopped already refuses
			klog.FromContext(ctx).Error(err, "The webhook's objects are not watched")
			return
		}
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	backoff := newBackoff()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		due, err := k.sync(ctx)
		if err == nil {
			backoff = newBackoff()
			timer.Reset(min(max(time.Until(due), 0), recheck))
			continue
		}
		if ctx.Err() != nil {
			return
		}
		pause := backoff.Step()
		k.metrics.syncErrors.Inc()
		klog.FromContext(ctx).Error(err, "The certificates are not in order", "again", pause)
		timer.Reset(pause)
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
}

func (k *keeper) look() {
	select {
	case k.wake <- struct{}{}:
	default: // it has not looked yet since the last time
	}
}

// sync takes one step if one is due, and takes over what the API server has. It
// returns when the next step is due.
func (k *keeper) sync(ctx context.Context) (due time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// A conflict is another replica that was faster: what it wrote is as good.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		m, err := k.syncSecret(ctx)
		if err != nil {
			return err
		}
		due = k.issuer.nextDue(m)
		if old := k.current.Swap(m.serving); old == nil || !bytes.Equal(old.Certificate[0], m.serving.Certificate[0]) {
			klog.FromContext(ctx).V(1).Info("Serving with another certificate", "name", k.issuer.name, "until", m.serving.Leaf.NotAfter, "renewedAt", due)
			k.metrics.expiry.Set(float64(m.serving.Leaf.NotAfter.Unix()))
		}
		return k.publish(ctx, m.bundle())
	})
	if err == nil {
		k.published.Store(true)
	}
	return due, err
}

// syncSecret reads the Secret and writes the next step to it, if one is due.
func (k *keeper) syncSecret(ctx context.Context) (material, error) {
	secrets := k.client.CoreV1().Secrets(k.config.Namespace)
	secret, err := secrets.Get(ctx, k.config.SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// The webhook may not make Secrets: that would be a right over any name.
		return material{}, fmt.Errorf("the Secret %s/%s, which the chart makes, is missing: install the chart again", k.config.Namespace, k.config.SecretName)
	} else if err != nil {
		return material{}, fmt.Errorf("read the certificates: %w", err)
	}
	now := time.Now()
	next, changed, err := k.issuer.next(k.issuer.parse(secret.Data, now), now)
	if err != nil || !changed {
		return next, err
	}
	data, err := next.data()
	if err != nil {
		return material{}, err
	}
	secret.Data = data
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return material{}, fmt.Errorf("write the certificates to Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	k.metrics.renewals.Inc()
	klog.FromContext(ctx).Info("Renewed the certificates", "secret", klog.KObj(secret), "authorities", len(next.authorities), "until", next.serving.Leaf.NotAfter)
	return next, nil
}

// publish puts the authorities into those webhooks of the configuration that call
// this service.
func (k *keeper) publish(ctx context.Context, bundle []byte) error {
	configurations := k.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	configuration, err := configurations.Get(ctx, k.config.ConfigurationName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the ValidatingWebhookConfiguration %s, which the chart makes, is missing: nothing is checked until the chart is installed again", k.config.ConfigurationName)
	} else if err != nil {
		return fmt.Errorf("read the webhook's configuration: %w", err)
	}
	changes := k.changes(configuration, bundle)
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		// Refused if somebody changed it after it was read.
		"metadata": map[string]string{"resourceVersion": configuration.ResourceVersion},
		"webhooks": changes,
	})
	if err != nil {
		return fmt.Errorf("write the webhook's configuration: %w", err)
	}
	if _, err := configurations.Patch(ctx, configuration.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write the authority to ValidatingWebhookConfiguration %s: %w", configuration.Name, err)
	}
	klog.FromContext(ctx).V(1).Info("Told the API server of the authority", "configuration", configuration.Name, "webhooks", len(changes))
	return nil
}

// webhookChange is one webhook in a patch; lists of webhooks are merged by name.
type webhookChange struct {
	Name         string             `json:"name"`
	ClientConfig clientConfigChange `json:"clientConfig"`
}

type clientConfigChange struct {
	CABundle []byte `json:"caBundle"`
}

// changes lists the webhooks that do not have the bundle.
func (k *keeper) changes(configuration *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) []webhookChange {
	var changes []webhookChange
	for _, webhook := range configuration.Webhooks {
		service := webhook.ClientConfig.Service
		if service == nil || service.Namespace != k.config.Namespace || service.Name != k.config.ServiceName {
			continue
		}
		if !bytes.Equal(webhook.ClientConfig.CABundle, bundle) {
			changes = append(changes, webhookChange{Name: webhook.Name, ClientConfig: clientConfigChange{CABundle: bundle}})
		}
	}
	return changes
}
