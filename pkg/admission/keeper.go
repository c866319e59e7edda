package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
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
// configuration and in this process. Every replica has one, and none leads: each
// goes by what the API server has, and writes only over the version that it read.
type keeper struct {
	config  Config
	issuer  issuer
	client  kubernetes.Interface
	metrics *Metrics

	// current is what this replica serves with: the API server knows it.
	current atomic.Pointer[tls.Certificate]
	wake    chan struct{}
}

func newKeeper(c Config, client kubernetes.Interface, m *Metrics) *keeper {
	return &keeper{
		config: c, client: client, metrics: m, wake: make(chan struct{}, 1),
		issuer: issuer{name: c.ServiceName + "." + c.Namespace + ".svc", lifetime: c.CertificateLifetime},
	}
}

// certificate is what a TLS server serves a connection with. It is an error while the
// API server cannot call this replica.
func (k *keeper) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := k.current.Load(); current != nil {
		return current, nil
	}
	return nil, fmt.Errorf("there is no certificate yet that the ValidatingWebhookConfiguration %s has", k.config.ConfigurationName)
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

// sync renews the certificate if that is due, tells the API server of it, and then
// serves with it. It returns when the next step is due.
func (k *keeper) sync(ctx context.Context) (due time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// A conflict is another replica that was faster: what it wrote is as good.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pairs, err := k.syncSecret(ctx)
		if err != nil {
			return err
		}
		if err := k.publish(ctx, bundle(pairs)); err != nil {
			return err
		}
		now := time.Now()
		due = k.issuer.nextLook(pairs, now)
		serving := k.issuer.serving(pairs, now).tls
		if old := k.current.Swap(&serving); old == nil || !old.Leaf.Equal(serving.Leaf) {
			klog.FromContext(ctx).V(1).Info("Serving with another certificate", "name", k.issuer.name, "until", serving.Leaf.NotAfter)
			k.metrics.expiry.Set(float64(serving.Leaf.NotAfter.Unix()))
		}
		return nil
	})
	return due, err
}

// syncSecret reads the Secret and writes a new certificate to it, if one is due.
func (k *keeper) syncSecret(ctx context.Context) ([]pair, error) {
	secrets := k.client.CoreV1().Secrets(k.config.Namespace)
	secret, err := secrets.Get(ctx, k.config.SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// The webhook may not make Secrets: that would be a right over any name.
		return nil, fmt.Errorf("the Secret %s/%s, which the chart makes, is missing: install the chart again", k.config.Namespace, k.config.SecretName)
	} else if err != nil {
		return nil, fmt.Errorf("read the certificates: %w", err)
	}
	next, changed, err := k.issuer.next(k.issuer.parse(secret.Data), time.Now())
	if err != nil || !changed {
		return next, err
	}
	secret.Data = secretData(next)
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("write the certificates to Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	k.metrics.renewals.Inc()
	klog.FromContext(ctx).Info("Renewed the certificate", "secret", klog.KObj(secret), "until", next[0].tls.Leaf.NotAfter)
	return next, nil
}

// publish puts the certificates into those webhooks of the configuration that call
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
		return fmt.Errorf("write the certificates to ValidatingWebhookConfiguration %s: %w", configuration.Name, err)
	}
	klog.FromContext(ctx).V(1).Info("Told the API server of the certificates", "configuration", configuration.Name, "webhooks", len(changes))
	return nil
}

// changes are the webhooks that do not have the bundle, as a patch has them: lists of
// webhooks are merged by name.
func (k *keeper) changes(configuration *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) []any {
	var changes []any
	for _, webhook := range configuration.Webhooks {
		service := webhook.ClientConfig.Service
		if service == nil || service.Namespace != k.config.Namespace || service.Name != k.config.ServiceName {
			continue
		}
		if !bytes.Equal(webhook.ClientConfig.CABundle, bundle) {
			changes = append(changes, map[string]any{"name": webhook.Name, "clientConfig": map[string][]byte{"caBundle": bundle}})
		}
	}
	return changes
}
