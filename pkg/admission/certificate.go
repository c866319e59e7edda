package admission

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"time"
)

// Keys of the Secret that the replicas share.
const (
	authorityCertificates = "ca.crt" // newest first
	authorityKey          = "ca.key" // of the first of them
	servingCertificate    = "tls.crt"
	servingKey            = "tls.key"
)

const (
	// backdate is how much earlier than now a certificate begins to be valid, for
	// API servers whose clocks are behind.
	backdate = time.Hour
	// authorityLifetimes is how many times longer an authority lives than a
	// serving certificate. A new authority is made when a third of the old one's
	// life is left: four lives of a serving certificate, so long before the first
	// certificate is signed by the new one everybody trusts it.
	authorityLifetimes = 12
)

// material is the certificates and keys that the replicas share. A part that is
// missing, damaged or of no use is nil.
type material struct {
	// authorities are the certificates that sign or signed serving certificates,
	// newest first. The newest signs; none is expired.
	authorities []*x509.Certificate
	// signer is the key of authorities[0].
	signer crypto.Signer
	// serving is what the webhook serves with: signed by one of the authorities,
	// for the right name, not expired.
	serving *tls.Certificate
}

// issuer makes certificates for one name.
type issuer struct {
	// name is the DNS name by which the API server calls the webhook.
	name string
	// lifetime is that of a serving certificate.
	lifetime time.Duration
}

// parse reads the data of the Secret. It takes what is of use at a time and leaves
// out the rest, which next makes anew.
func (i issuer) parse(data map[string][]byte, now time.Time) material {
	var m material
	for rest := data[authorityCertificates]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && certificate.IsCA && now.Before(certificate.NotAfter) {
			m.authorities = append(m.authorities, certificate)
		}
	}
	if len(m.authorities) > 0 {
		m.signer = parseSigner(data[authorityKey], m.authorities[0].PublicKey)
	}
	if pair, err := tls.X509KeyPair(data[servingCertificate], data[servingKey]); err == nil && m.serves(&pair, i.name, now) {
		m.serving = &pair
	}
	return m
}

// parseSigner reads a key; nil if it is none, or not that of a certificate.
func parseSigner(encoded []byte, public crypto.PublicKey) crypto.Signer {
	block, _ := pem.Decode(encoded)
	if block == nil {
		return nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(public) {
		return nil
	}
	return private
}

// serves says whether those who trust the authorities accept a certificate.
func (m material) serves(pair *tls.Certificate, name string, now time.Time) bool {
	roots := x509.NewCertPool()
	for _, authority := range m.authorities {
		roots.AddCert(authority)
	}
	_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now})
	return err == nil
}

// next returns what the Secret should hold at a time. It makes one step: a new
// authority is added first, and signs some time after that was written. So while two
// versions of the Secret are in use both are trusted.
func (i issuer) next(m material, now time.Time) (next material, changed bool, err error) {
	next = m
	switch {
	case m.signer == nil:
		// Nobody holds the key of an authority: those that are trusted stay trusted.
		err = next.addAuthority(i, now)
		if err == nil && m.serving == nil {
			err = next.sign(i, now)
		}
	case m.serving == nil:
		err = next.sign(i, now)
	case !now.Before(due(m.authorities[0])):
		err = next.addAuthority(i, now)
	case !now.Before(i.signAt(m)):
		err = next.sign(i, now)
	default:
		return m, false, nil
	}
	return next, true, err
}

// due is when a certificate is to be renewed: when a third of its life is left.
func due(certificate *x509.Certificate) time.Time {
	return certificate.NotAfter.Add(-certificate.NotAfter.Sub(issued(certificate)) / 3)
}

func issued(certificate *x509.Certificate) time.Time { return certificate.NotBefore.Add(backdate) }

// signAt is when a new serving certificate is to be signed: when the old one is due,
// but not so soon after a new authority was made that an API server may not know it.
func (i issuer) signAt(m material) time.Time {
	known := issued(m.authorities[0]).Add(min(time.Minute, i.lifetime/12))
	return later(due(m.serving.Leaf), known)
}

// nextDue is when something of the material is to be renewed.
func (i issuer) nextDue(m material) time.Time {
	authority, serving := due(m.authorities[0]), i.signAt(m)
	if authority.Before(serving) {
		return authority
	}
	return serving
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (m *material) addAuthority(i issuer, now time.Time) error {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority of " + i.name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLifetimes * i.lifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the authority's key: %w", err)
	}
	certificate, err := create(template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make the authority's certificate: %w", err)
	}
	m.authorities = slices.Concat([]*x509.Certificate{certificate}, m.authorities)
	m.signer = key
	return nil
}

func (m *material) sign(i issuer, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the serving key: %w", err)
	}
	notAfter := now.Add(i.lifetime)
	if last := m.authorities[0].NotAfter; last.Before(notAfter) {
		notAfter = last // nobody would accept it longer
	}
	certificate, err := create(&x509.Certificate{
		Subject:     pkix.Name{CommonName: i.name},
		DNSNames:    []string{i.name},
		NotBefore:   now.Add(-backdate),
		NotAfter:    notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, m.authorities[0], key.Public(), m.signer)
	if err != nil {
		return fmt.Errorf("make the serving certificate: %w", err)
	}
	m.serving = &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}
	return nil
}

// create makes a certificate; crypto/x509 chooses the serial number.
func create(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// bundle is the certificates of the authorities as the API server wants them: PEM.
func (m material) bundle() []byte {
	var encoded bytes.Buffer
	for _, authority := range m.authorities {
		encoded.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}))
	}
	return encoded.Bytes()
}

// data is the Secret's.
func (m material) data() (map[string][]byte, error) {
	signer, err := encodeKey(m.signer)
	if err != nil {
		return nil, err
	}
	serving, err := encodeKey(m.serving.PrivateKey)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		authorityCertificates: m.bundle(),
		authorityKey:          signer,
		servingCertificate:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.serving.Certificate[0]}),
		servingKey:            serving,
	}, nil
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
