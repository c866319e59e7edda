package admission

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// secretKeys name the certificates in the Secret that the replicas share, and their
// keys: the newest first, then the one before.
var secretKeys = [...]struct{ certificate, key string }{{"tls.crt", "tls.key"}, {"previous.crt", "previous.key"}}

// backdate is how much earlier than now a certificate begins to be valid, for API
// servers whose clocks are behind.
const backdate = time.Hour

// pair is a serving certificate with its key. The certificate signs itself, so it is
// also what the API server must trust, and nobody holds the key of an authority.
type pair struct {
	certificate, key []byte // PEM
	tls              tls.Certificate
}

// issuer makes certificates for one name.
type issuer struct {
	// name is the DNS name by which the API server calls the webhook.
	name string
	// lifetime is how long a certificate is valid.
	lifetime time.Duration
}

// parse reads the data of the Secret and leaves out what is damaged or has another
// name. The newest pair comes first; one that has expired is still listed.
func (i issuer) parse(data map[string][]byte) []pair {
	var pairs []pair
	for _, names := range secretKeys {
		p := pair{certificate: data[names.certificate], key: data[names.key]}
		var err error
		if p.tls, err = tls.X509KeyPair(p.certificate, p.key); err == nil && p.tls.Leaf.VerifyHostname(i.name) == nil {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// next returns the pairs that the Secret should hold at a time, and whether a new one
// is among them: one is made when a third of the newest one's life is left.
func (i issuer) next(pairs []pair, now time.Time) ([]pair, bool, error) {
	if len(pairs) > 0 && now.Before(pairs[0].due()) {
		return pairs, false, nil
	}
	made, err := i.create(now)
	if err != nil {
		return nil, false, fmt.Errorf("make a certificate: %w", err)
	}
	return append([]pair{made}, pairs[:min(1, len(pairs))]...), true, nil
}

// serving is the pair to serve with at a time: the newest, but not so soon after it
// was made that an API server may not know it, if there is one before it.
func (i issuer) serving(pairs []pair, now time.Time) pair {
	if len(pairs) > 1 && now.Before(i.known(pairs[0])) && now.Before(pairs[1].tls.Leaf.NotAfter) {
		return pairs[1]
	}
	return pairs[0]
}

// known is when all API servers know a certificate that was published as soon as it
// was made.
func (i issuer) known(p pair) time.Time { return p.issued().Add(min(time.Minute, i.lifetime/12)) }

// nextLook is when there is something to do: to serve with the newest pair, or to
// renew it.
func (i issuer) nextLook(pairs []pair, now time.Time) time.Time {
	if known := i.known(pairs[0]); now.Before(known) {
		return known
	}
	return pairs[0].due()
}

func (p pair) issued() time.Time { return p.tls.Leaf.NotBefore.Add(backdate) }

func (p pair) due() time.Time {
	return p.tls.Leaf.NotAfter.Add(-p.tls.Leaf.NotAfter.Sub(p.issued()) / 3)
}

// create makes a pair; crypto/x509 chooses the serial number.
func (i issuer) create(now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: i.name},
		DNSNames:    []string{i.name},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(i.lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return pair{}, err
	}
	p := pair{}
	if p.certificate, err = cert.EncodeCertificates(&x509.Certificate{Raw: der}); err != nil {
		return pair{}, err
	}
	if p.key, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return pair{}, err
	}
	p.tls, err = tls.X509KeyPair(p.certificate, p.key)
	return p, err
}

// bundle is what the API server is to trust: all certificates of the Secret, so that
// it does not depend on the clock of a replica.
func bundle(pairs []pair) []byte {
	var encoded bytes.Buffer
	for _, p := range pairs {
		encoded.Write(p.certificate)
	}
	return encoded.Bytes()
}

// secretData is the Secret's.
func secretData(pairs []pair) map[string][]byte {
	data := map[string][]byte{}
	for i, p := range pairs {
		data[secretKeys[i].certificate], data[secretKeys[i].key] = p.certificate, p.key
	}
	return data
}
