package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

// validity of all certificates; the cluster is not meant to live as long.
const validity = 365 * 24 * time.Hour

// authority is the cluster's certificate authority. Its files lie in one folder;
// its own key is written nowhere.
type authority struct {
	dir         string
	certificate *x509.Certificate
	encoded     []byte
	key         crypto.Signer
}

// newAuthority makes an authority and writes its certificate to dir/ca.crt.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "apportion local cluster"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(validity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	a := &authority{dir: dir, certificate: certificate, encoded: encoded, key: key}
	return a, writeFile(a.path("ca.crt"), encoded, 0o644)
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// issue makes a key and a certificate for it. names are the DNS names and IP
// addresses that a server is called by; a certificate without any is a client's.
func (a *authority) issue(subject pkix.Name, names ...string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for %s: %w", subject.CommonName, err)
	}
	template := &x509.Certificate{
		Subject:     subject,
		NotBefore:   a.certificate.NotBefore,
		NotAfter:    a.certificate.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate for %s: %w", subject.CommonName, err)
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, nil
}

// write issues a certificate and writes it and its key to name.crt and name.key.
func (a *authority) write(name string, subject pkix.Name, names ...string) error {
	certificate, key, err := a.issue(subject, names...)
	if err != nil {
		return err
	}
	if err := writeFile(a.path(name+".crt"), certificate, 0o644); err != nil {
		return err
	}
	return writeFile(a.path(name+".key"), key, 0o600)
}

// writeKeyPair writes a key pair that no certificate belongs to, to name.key and
// name.pub: what service account tokens are signed with.
func (a *authority) writeKeyPair(name string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key %s: %w", name, err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return err
	}
	if err := writeFile(a.path(name+".key"), encoded, 0o600); err != nil {
		return err
	}
	return writeFile(a.path(name+".pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

// writeKubeconfig writes a kubeconfig for a new client certificate.
func (a *authority) writeKubeconfig(path, server string, subject pkix.Name) error {
	certificate, key, err := a.issue(subject)
	if err != nil {
		return err
	}
	const name = "apportion"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.encoded}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writeFile(path, data, 0o600)
}
