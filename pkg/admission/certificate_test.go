package admission

import (
	"bytes"
	"crypto/x509"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
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

// renew does what the keeper does at a time, and returns the new data of the Secret
// and whether a certificate was made.
func renew(t *testing.T, i issuer, data map[string][]byte, now time.Time) (map[string][]byte, bool) {
	t.Helper()
	next, changed, err := i.next(i.parse(data), now)
	if err != nil {
		t.Fatal(err)
	}
	return secretData(next), changed
}

// serves returns the certificate that is served at a time.
func serves(i issuer, data map[string][]byte, now time.Time) *x509.Certificate {
	return i.serving(i.parse(data), now).tls.Leaf
}

// trusted checks a certificate as the API server does that knows the data of a Secret.
func trusted(i issuer, data map[string][]byte, certificate *x509.Certificate, now time.Time) bool {
	return accepted(i, i.parse(data), certificate, now)
}

func accepted(i issuer, pairs []pair, certificate *x509.Certificate, now time.Time) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle(pairs))
	_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: i.name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err == nil
}

func TestCertificatesAreRenewedAtTwoThirdsOfTheirLife(t *testing.T) {
	data, _ := renew(t, maker, nil, start)
	first := serves(maker, data, start)
	if !first.NotAfter.Equal(start.Add(90*day)) || !first.NotBefore.Equal(start.Add(-time.Hour)) {
		t.Errorf("the certificate is valid from %s to %s", first.NotBefore, first.NotAfter)
	}
	if _, made := renew(t, maker, data, start.Add(60*day-time.Second)); made {
		t.Error("renewed too early")
	}
	now := start.Add(60 * day)
	renewed, made := renew(t, maker, data, now)
	if !made || len(renewed) != 4 || !bytes.Equal(renewed["previous.crt"], data["tls.crt"]) || bytes.Equal(renewed["tls.key"], data["tls.key"]) {
		t.Errorf("renewed at two thirds of the life: %t; the key is kept: %t", made, bytes.Equal(renewed["tls.key"], data["tls.key"]))
	}
	// The next renewal leaves out the first certificate.
	again, made := renew(t, maker, renewed, start.Add(120*day))
	if !made || len(again) != 4 || !bytes.Equal(again["previous.crt"], renewed["tls.crt"]) {
		t.Errorf("renewed at 120 days: %t, with %d entries", made, len(again))
	}
}

// TestANewCertificateIsKnownBeforeItIsServed: API servers hear of it some time after
// it was made.
func TestANewCertificateIsKnownBeforeItIsServed(t *testing.T) {
	data, _ := renew(t, maker, nil, start)
	first := serves(maker, data, start)
	now := start.Add(60 * day)
	data, _ = renew(t, maker, data, now)
	if got := maker.nextLook(maker.parse(data), now); !got.Equal(now.Add(time.Minute)) {
		t.Errorf("looked at again at %s", got)
	}
	if !serves(maker, data, now.Add(time.Minute-time.Second)).Equal(first) {
		t.Error("served before every API server may know it")
	}
	now = now.Add(time.Minute)
	if serves(maker, data, now).Equal(first) {
		t.Error("the old certificate is still served a minute later")
	}
	if got := maker.nextLook(maker.parse(data), now); !got.Equal(start.Add(120 * day)) {
		t.Errorf("looked at again at %s", got)
	}
	short := issuer{name: maker.name, lifetime: time.Minute}
	data, _ = renew(t, short, data, start.Add(120*day))
	if got := short.nextLook(short.parse(data), start.Add(120*day)); !got.Equal(start.Add(120*day + 5*time.Second)) {
		t.Errorf("a certificate of a minute is served at %s", got)
	}
}

// TestCertificatesAlwaysWork goes through years with looks at random times, and
// checks that nobody ever meets a certificate that has expired or is not trusted.
func TestCertificatesAlwaysWork(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, life := range []time.Duration{MinCertificateLifetime, time.Hour, lifetime} {
		i := issuer{name: "hook.gpus.svc", lifetime: life}
		now := start
		var pairs []pair
		var made int
		for range 150 {
			next, renewed, err := i.next(pairs, now)
			if err != nil {
				t.Fatal(err)
			}
			before := pairs
			if pairs = next; renewed {
				made++
			}
			certificate := i.serving(pairs, now).tls.Leaf
			if !accepted(i, pairs, certificate, now) || before != nil && !accepted(i, before, certificate, now) {
				t.Fatalf("life %s: at %s a certificate is served that is not trusted", life, now)
			}
			// A look is never later than it was planned to be by a sixth of a life.
			at := i.nextLook(pairs, now)
			now = now.Add(time.Duration(random.Int64N(int64(at.Sub(now)) + int64(life/6))))
		}
		if made < 20 {
			t.Errorf("life %s: %d renewals", life, made)
		}
	}
}

func TestDamagedCertificatesAreReplaced(t *testing.T) {
	one, _ := renew(t, maker, nil, start)
	whole, _ := renew(t, maker, one, start.Add(60*day))
	other, _ := renew(t, maker, nil, start.Add(60*day))
	elsewhere, _ := renew(t, issuer{name: "another.gpus.svc", lifetime: lifetime}, nil, start.Add(60*day))
	for _, test := range []struct {
		name   string
		change func(map[string][]byte)
		// made is whether a certificate is made at once, keepsOld whether the one
		// before the damage stays trusted.
		made, keepsOld bool
	}{
		{"emptied", func(d map[string][]byte) { clear(d) }, true, false},
		{"no serving certificate", func(d map[string][]byte) { delete(d, "tls.crt") }, true, true},
		{"key of another", func(d map[string][]byte) { d["tls.key"] = other["tls.key"] }, true, true},
		{"no text at all", func(d map[string][]byte) { d["tls.crt"] = []byte("x") }, true, true},
		{"certificate cut off", func(d map[string][]byte) { d["tls.crt"] = d["tls.crt"][:100] }, true, true},
		{"no certificate before it", func(d map[string][]byte) { delete(d, "previous.crt") }, false, false},
		{"of another name", func(d map[string][]byte) { maps.Copy(d, elsewhere) }, true, true},
		{"something beside it", func(d map[string][]byte) { d["ca.crt"] = []byte("x") }, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			damaged := maps.Clone(whole)
			test.change(damaged)
			now := start.Add(61 * day)
			data, made := renew(t, maker, damaged, now)
			if made != test.made {
				t.Errorf("a certificate was made: %t", made)
			}
			if !trusted(maker, data, serves(maker, data, now), now) {
				t.Error("not put right")
			}
			if got := trusted(maker, data, serves(maker, one, start), now); got != test.keepsOld {
				t.Errorf("the certificate before is trusted: %t", got)
			}
		})
	}
}

// TestEverythingExpired is a cluster that was off for years.
func TestEverythingExpired(t *testing.T) {
	data, _ := renew(t, maker, nil, start)
	now := start.Add(5 * 365 * day)
	data, made := renew(t, maker, data, now)
	if certificate := serves(maker, data, now); !made || !trusted(maker, data, certificate, now) {
		t.Errorf("made: %t; the certificate served ends at %s", made, certificate.NotAfter)
	}
}

func TestKeysAreNotInTheBundle(t *testing.T) {
	data, _ := renew(t, maker, nil, start)
	if got := bundle(maker.parse(data)); bytes.Contains(got, []byte("PRIVATE")) || bytes.Count(got, []byte("BEGIN")) != 1 {
		t.Errorf("the API server is given %s", got)
	}
}

// TestWhoHasTheKeyCanSignNothingElse: the certificate is no authority.
func TestWhoHasTheKeyCanSignNothingElse(t *testing.T) {
	data, _ := renew(t, maker, nil, start)
	if c := serves(maker, data, start); c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("authority: %t, usage %b", c.IsCA, c.KeyUsage)
	}
}

// TestACertificateInAFolder is one that cert-manager keeps.
func TestACertificateInAFolder(t *testing.T) {
	m := NewMetrics()
	f := &folder{path: t.TempDir(), metrics: m}
	if _, err := f.certificate(nil); err == nil || !strings.Contains(err.Error(), "no certificate yet") {
		t.Errorf("error %v", err)
	}
	write := func(data map[string][]byte, names ...string) {
		for _, name := range names {
			must(t, os.WriteFile(filepath.Join(f.path, name), data[name], 0o600))
		}
	}
	first, _ := renew(t, maker, nil, start)
	second, _ := renew(t, maker, nil, start.Add(day))
	want := func(data map[string][]byte) {
		t.Helper()
		got, err := f.certificate(nil)
		if err != nil || !got.Leaf.Equal(serves(maker, data, start)) {
			t.Errorf("another certificate, or error %v", err)
		}
	}
	write(first, "tls.crt", "tls.key")
	want(first)
	write(second, "tls.crt") // and the key a moment later
	want(first)
	write(second, "tls.key")
	want(second)
	if got := samples(t, m, "apportion_webhook_certificate_expiry_timestamp_seconds")[""]; int64(got) != start.Add(91*day).Unix() {
		t.Errorf("expiry %v", got)
	}
}
