package admission

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	day      = 24 * time.Hour
	lifetime = 90 * day
)

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	maker = issuer{name: "hook.gpus.svc", lifetime: lifetime}
)

// step takes the steps that are due, as often as the keeper would, and returns the
// new data of the Secret and how many steps were taken. It fails if a version of the
// Secret is served that those who know the one before do not trust.
func step(t *testing.T, i issuer, data map[string][]byte, now time.Time) (map[string][]byte, int) {
	t.Helper()
	for steps := 0; ; steps++ {
		before := i.parse(data, now)
		next, changed, err := i.next(before, now)
		if err != nil {
			t.Fatal(err)
		}
		if !changed {
			return data, steps
		}
		if before.serving != nil && !trusted(before.bundle(), next.serving.Leaf, i.name, now) {
			t.Fatalf("%s: the new certificate is not trusted by those who have the old authorities", now)
		}
		if data, err = next.data(); err != nil {
			t.Fatal(err)
		}
		if steps > 3 {
			t.Fatalf("%s: no end of steps", now)
		}
	}
}

// trusted checks a certificate as the API server does.
func trusted(bundle []byte, certificate *x509.Certificate, name string, now time.Time) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err == nil
}

func leaf(t *testing.T, data map[string][]byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data[servingCertificate])
	if block == nil {
		t.Fatal("no serving certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestCertificatesAreRenewedAtTwoThirdsOfTheirLife(t *testing.T) {
	data, _ := step(t, maker, nil, start)
	first := leaf(t, data)
	if got := first.NotAfter; !got.Equal(start.Add(lifetime)) {
		t.Errorf("the certificate ends at %s", got)
	}
	m := maker.parse(data, start)
	if got := maker.nextDue(m); !got.Equal(start.Add(60 * day)) {
		t.Errorf("the next renewal is at %s", got)
	}
	if _, steps := step(t, maker, data, start.Add(60*day-time.Second)); steps != 0 {
		t.Error("renewed too early")
	}
	renewed, steps := step(t, maker, data, start.Add(60*day))
	if steps != 1 || leaf(t, renewed).SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Errorf("%d steps at two thirds of the life", steps)
	}
	if !bytes.Equal(renewed[authorityCertificates], data[authorityCertificates]) || bytes.Equal(renewed[servingKey], data[servingKey]) {
		t.Error("the authority was renewed too, or the key was kept")
	}
	// 12 lives of 90 days are the authority's: it is due after 720 days.
	data, _ = step(t, maker, renewed, start.Add(719*day))
	if got := len(maker.parse(data, start.Add(719*day)).authorities); got != 1 {
		t.Errorf("%d authorities after 719 days", got)
	}
	signed := leaf(t, data)
	data, steps = step(t, maker, data, start.Add(720*day))
	if got := len(maker.parse(data, start.Add(720*day)).authorities); got != 2 || steps != 1 {
		t.Errorf("%d authorities after 720 days, in %d steps", got, steps)
	}
	if leaf(t, data).SerialNumber.Cmp(signed.SerialNumber) != 0 {
		t.Error("the new authority signed before anybody knew it")
	}
	data, _ = step(t, maker, data, start.Add(1081*day))
	if got := len(maker.parse(data, start.Add(1081*day)).authorities); got != 1 {
		t.Errorf("%d authorities after the first one's end", got)
	}
}

// TestCertificatesAlwaysWork goes through years with looks at random times, and
// checks that nobody ever meets a certificate that has ended or is not trusted.
func TestCertificatesAlwaysWork(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, life := range []time.Duration{MinCertificateLifetime, time.Hour, lifetime} {
		i := issuer{name: "hook.gpus.svc", lifetime: life}
		now := start
		data, _ := step(t, i, nil, now)
		var steps, authorities int
		for range 150 {
			// A look is never later than it was planned to be by a sixth of a life.
			at := i.nextDue(i.parse(data, now))
			now = now.Add(time.Duration(random.Int64N(int64(at.Sub(now)) + int64(life/6))))
			if m := i.parse(data, now); m.serving == nil || m.signer == nil {
				t.Fatalf("life %s: nothing to serve with at %s", life, now)
			}
			var n int
			data, n = step(t, i, data, now)
			steps += n
			authorities = max(authorities, len(i.parse(data, now).authorities))
		}
		if steps < 40 || authorities != 2 {
			t.Errorf("life %s: %d steps, %d authorities at most", life, steps, authorities)
		}
	}
}

func TestDamagedCertificatesAreReplaced(t *testing.T) {
	whole, _ := step(t, maker, nil, start)
	other, _ := step(t, maker, nil, start)
	elsewhere, _ := step(t, issuer{name: "another.gpus.svc", lifetime: lifetime}, nil, start)
	for _, test := range []struct {
		name   string
		change func(map[string][]byte)
		// keepsAuthority is whether those who trust the authority still do.
		keepsAuthority bool
	}{
		{"emptied", func(d map[string][]byte) { clear(d) }, false},
		{"no serving certificate", func(d map[string][]byte) { delete(d, servingCertificate) }, true},
		{"key of another", func(d map[string][]byte) { d[servingKey] = other[servingKey] }, true},
		{"certificate of another authority", func(d map[string][]byte) {
			d[servingKey], d[servingCertificate] = other[servingKey], other[servingCertificate]
		}, true},
		{"no text at all", func(d map[string][]byte) { d[servingCertificate] = []byte("x") }, true},
		{"certificates cut off", func(d map[string][]byte) { d[authorityCertificates] = d[authorityCertificates][:100] }, false},
		{"no key of the authority", func(d map[string][]byte) { delete(d, authorityKey) }, true},
		{"authority's key of another", func(d map[string][]byte) { d[authorityKey] = other[authorityKey] }, true},
		{"a serving certificate as authority", func(d map[string][]byte) { d[authorityCertificates] = d[servingCertificate] }, false},
		{"of another name", func(d map[string][]byte) { maps.Copy(d, elsewhere) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			damaged := maps.Clone(whole)
			test.change(damaged)
			data, _ := step(t, maker, damaged, start.Add(day))
			if m := maker.parse(data, start.Add(day)); m.serving == nil || m.signer == nil {
				t.Fatal("not put right")
			}
			if got := trusted(whole[authorityCertificates], leaf(t, data), maker.name, start.Add(day)); got != test.keepsAuthority {
				t.Errorf("trusted by those who know the old authority: %t", got)
			}
		})
	}
}

// TestANewAuthorityIsKnownBeforeItSigns: both are due at once, as they are after 12
// renewals.
func TestANewAuthorityIsKnownBeforeItSigns(t *testing.T) {
	data, _ := step(t, maker, nil, start)
	data, _ = step(t, maker, data, start.Add(660*day))
	now := start.Add(720 * day)
	old := leaf(t, data).SerialNumber
	for _, look := range []struct {
		after    time.Duration
		replaced bool
	}{{0, false}, {59 * time.Second, false}, {time.Minute, true}} {
		data, _ = step(t, maker, data, now.Add(look.after))
		if got := leaf(t, data).SerialNumber.Cmp(old) != 0; got != look.replaced {
			t.Errorf("%s after the authority, it has signed: %t", look.after, got)
		}
		if got := len(maker.parse(data, now).authorities); got != 2 {
			t.Errorf("%d authorities", got)
		}
		if got := maker.nextDue(maker.parse(data, now)); !look.replaced && !got.Equal(now.Add(time.Minute)) {
			t.Errorf("the next step is at %s", got)
		}
	}
}

// TestEverythingEnded is a cluster that was off for years.
func TestEverythingEnded(t *testing.T) {
	data, _ := step(t, maker, nil, start)
	later := start.Add(5 * 365 * day)
	data, _ = step(t, maker, data, later)
	m := maker.parse(data, later)
	if len(m.authorities) != 1 || m.serving == nil || m.signer == nil {
		t.Errorf("%d authorities", len(m.authorities))
	}
}

// TestALongerLifetimeDoesNotOutliveTheAuthority: the flag was raised.
func TestALongerLifetimeDoesNotOutliveTheAuthority(t *testing.T) {
	data, _ := step(t, issuer{name: maker.name, lifetime: time.Hour}, nil, start)
	now := start.Add(40 * time.Minute)
	data, steps := step(t, maker, data, now)
	if got := leaf(t, data).NotAfter; steps != 1 || got.After(start.Add(12*time.Hour)) {
		t.Errorf("%d steps, the certificate ends at %s, after its authority", steps, got)
	}
}

func TestKeysAreNotInTheBundle(t *testing.T) {
	data, _ := step(t, maker, nil, start)
	if bytes.Contains(maker.parse(data, start).bundle(), []byte("PRIVATE")) || bytes.Contains(data[servingCertificate], []byte("PRIVATE")) {
		t.Error("a private key is where everybody sees it")
	}
}
