package admission

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pass lets time pass, and everything happen that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTheFirstReplicaMakesTheCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		r := startReplica(t, a)
		r.mustCall(t, a)
		secret := a.secret(t)
		if len(secret.Data) != 2 || secret.Labels["keep"] != "me" {
			t.Errorf("Secret %+v", secret.ObjectMeta)
		}
		for _, webhook := range a.configuration(t).Webhooks {
			ours := strings.HasSuffix(webhook.Name, ".hook")
			if got := bytes.Equal(webhook.ClientConfig.CABundle, secret.Data["tls.crt"]); got != ours {
				t.Errorf("webhook %s has the certificate: %t", webhook.Name, got)
			}
			if !ours && len(webhook.ClientConfig.CABundle) > 0 {
				t.Errorf("webhook %s was changed", webhook.Name)
			}
		}
		if s, c := a.written("secrets"), a.written("validatingwebhookconfigurations"); s != 1 || c != 1 {
			t.Errorf("%d writes of the Secret and %d of the configuration", s, c)
		}
	})
}

// TestReplicasAgreeForAYear: every certificate is made once, all replicas have it,
// and the API server can call each of them at any time.
func TestReplicasAgreeForAYear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		replicas := []*replica{startReplica(t, a), startReplica(t, a)}
		serials := map[string]bool{}
		pass(time.Hour) // looks are at other times than renewals
		for range 40 {
			pass(10 * day)
			first := replicas[0].mustCall(t, a)
			serials[first.SerialNumber.String()] = true
			for _, r := range replicas[1:] {
				if !r.mustCall(t, a).Equal(first) {
					t.Fatalf("at %s the replicas have different certificates", time.Now())
				}
			}
		}
		// One certificate for every 60 days.
		if len(serials) != 7 {
			t.Errorf("%d serving certificates in 400 days, want 7", len(serials))
		}
		if got := a.written("secrets"); got != 7 {
			t.Errorf("the Secret was written %d times, want 7", got)
		}
		if got := a.written("validatingwebhookconfigurations"); got != 7 {
			t.Errorf("the configuration was written %d times, want 7", got)
		}
	})
}

func TestReplicasThatStartTogetherAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		var replicas []*replica
		for range 5 {
			replicas = append(replicas, startUnwaited(t, a))
		}
		pass(time.Second)
		first := replicas[0].mustCall(t, a)
		for _, r := range replicas {
			if !r.mustCall(t, a).Equal(first) {
				t.Error("the replicas have different certificates")
			}
		}
		if got := a.written("secrets"); got != 1 {
			t.Errorf("the Secret was written %d times", got)
		}
	})
}

func TestWhatSomebodyBreaksIsMended(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*testing.T, *api)
		// sameCertificate is whether the certificate is none of what was broken.
		sameCertificate bool
	}{
		{"Secret emptied", func(t *testing.T, a *api) {
			secret := a.secret(t)
			secret.Data = nil
			must(t, a.Tracker().Update(secretsResource, secret, "gpus"))
		}, false},
		{"certificate taken out of the configuration, as by helm upgrade --force", func(t *testing.T, a *api) {
			configuration := a.configuration(t)
			for i := range configuration.Webhooks {
				configuration.Webhooks[i].ClientConfig.CABundle = nil
			}
			must(t, a.Tracker().Update(configurationsResource, configuration, ""))
		}, true},
		{"configuration made anew", func(t *testing.T, a *api) {
			configuration := a.configuration(t)
			must(t, a.Tracker().Delete(configurationsResource, "", "hooks"))
			synctest.Wait()
			for i := range configuration.Webhooks {
				configuration.Webhooks[i].ClientConfig.CABundle = nil
			}
			must(t, a.Tracker().Create(configurationsResource, configuration, ""))
		}, true},
		{"Secret made anew", func(t *testing.T, a *api) {
			secret := a.secret(t)
			must(t, a.Tracker().Delete(secretsResource, "gpus", "certificates"))
			synctest.Wait()
			secret.Data = nil
			must(t, a.Tracker().Create(secretsResource, secret, "gpus"))
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI()
				replicas := []*replica{startReplica(t, a), startReplica(t, a)}
				before := replicas[0].mustCall(t, a)
				test.spoil(t, a)
				pass(10 * time.Second)
				for _, r := range replicas {
					if got := r.mustCall(t, a); got.Equal(before) != test.sameCertificate {
						t.Errorf("the same certificate as before: %t", got.Equal(before))
					}
				}
			})
		})
	}
}

func TestWhileTheSecretIsMissingTheOldCertificateIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		r := startReplica(t, a)
		must(t, a.Tracker().Delete(secretsResource, "gpus", "certificates"))
		pass(time.Hour)
		r.mustCall(t, a)
		_, err := r.sync(t.Context())
		if err == nil || !strings.Contains(err.Error(), "Secret gpus/certificates") || !strings.Contains(err.Error(), "install the chart") {
			t.Errorf("error %v", err)
		}
	})
}

func TestAReplicaIsReadyWhenTheAPIServerCanCallIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		configuration := a.configuration(t)
		must(t, a.Tracker().Delete(configurationsResource, "", "hooks"))
		r := startReplica(t, a)
		if _, err := r.certificate(nil); err == nil || !strings.Contains(err.Error(), "ValidatingWebhookConfiguration hooks") {
			t.Errorf("ready without a configuration: %v", err)
		}
		must(t, a.Tracker().Create(configurationsResource, configuration, ""))
		pass(0)
		r.mustCall(t, a)
	})
}

func TestErrorsOfTheAPIAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.setFail(errors.New("the API server is away"))
		r := startReplica(t, a)
		pass(10 * time.Minute)
		if _, err := r.certificate(nil); err == nil {
			t.Error("ready without a certificate")
		}
		if got := samples(t, r.metrics, "apportion_webhook_certificate_errors_total")[""]; got < 8 || got > 25 {
			t.Errorf("%v tries in ten minutes", got)
		}
		a.setFail(nil)
		pass(2 * time.Minute)
		expiry := samples(t, r.metrics, "apportion_webhook_certificate_expiry_timestamp_seconds")[""]
		if got := r.mustCall(t, a); int64(expiry) != got.NotAfter.Unix() {
			t.Errorf("expiry %v; the certificate ends at %s", expiry, got.NotAfter)
		}
	})
}

// TestAReplicaThatComesBackAfterYears finds certificates that ended long ago.
func TestAReplicaThatComesBackAfterYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		startReplica(t, a).end()
		pass(5 * 365 * day)
		r := startReplica(t, a)
		pass(time.Second)
		r.mustCall(t, a)
	})
}

func TestOtherObjectsAreNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		secret := a.secret(t)
		secret.Name = "theirs"
		must(t, a.Tracker().Create(secretsResource, secret, "gpus"))
		startReplica(t, a)
		pass(100 * day)
		got, err := a.CoreV1().Secrets("gpus").Get(t.Context(), "theirs", metav1.GetOptions{})
		if err != nil || len(got.Data) > 0 {
			t.Errorf("another Secret was written: %v, %v", got.Data, err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
