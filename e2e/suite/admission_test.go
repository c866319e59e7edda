package suite

import (
	"context"
	"strings"
	"testing"

	admissionapi "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusedAtAdmission wants the webhook to refuse a claim with the texts, and then makes
// the claim all the same: without the webhook the driver is the last to refuse it.
func (s *space) refusedAtAdmission(name string, spec resourceapi.ResourceClaimSpec, texts ...string) {
	s.t.Helper()
	claims := client.ResourceV1().ResourceClaims(s.name)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	_, err := claims.Create(s.t.Context(), claim, metav1.CreateOptions{})
	if err == nil {
		s.t.Fatalf("claim %s was admitted", name)
	}
	for _, text := range append(texts, "admission webhook") {
		if !strings.Contains(err.Error(), text) {
			s.t.Errorf("claim %s was refused with %q, want %q in it", name, err, text)
		}
	}
	withoutAdmission(s.t)
	waitFor(s.t, "claim "+name+" is admitted without the webhook", func(ctx context.Context) (bool, error) {
		_, err := claims.Create(ctx, claim, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || err != nil && strings.Contains(err.Error(), "admission webhook") {
			return false, nil // The API server has not noticed yet.
		}
		return err == nil, err
	})
}

// withoutAdmission takes the webhook away until the test ends.
func withoutAdmission(t *testing.T) {
	t.Helper()
	api := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	all, err := api.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=apportion"})
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range all.Items {
		if err := api.Delete(t.Context(), found.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		again := &admissionapi.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: found.Name, Labels: found.Labels, Annotations: found.Annotations},
			Webhooks:   found.Webhooks,
		}
		t.Cleanup(func() {
			if _, err := api.Create(context.WithoutCancel(t.Context()), again, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}
