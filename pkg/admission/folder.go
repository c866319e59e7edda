package admission

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"sync/atomic"
)

// folder serves with the certificate that somebody else, such as cert-manager, keeps
// in a folder as tls.crt and tls.key.
type folder struct {
	path    string
	metrics *Metrics
	last    atomic.Pointer[tls.Certificate]
}

// certificate reads the files. While they cannot be read, as between the renewal of
// one and of the other, it is what they were before.
func (f *folder) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	read, err := tls.LoadX509KeyPair(filepath.Join(f.path, "tls.crt"), filepath.Join(f.path, "tls.key"))
	if err == nil {
		f.metrics.expiry.Set(float64(read.Leaf.NotAfter.Unix()))
		f.last.Store(&read)
		return &read, nil
	}
	if last := f.last.Load(); last != nil {
		return last, nil
	}
	return nil, fmt.Errorf("there is no certificate yet: %w", err)
}
