// Package apiserver is how programs reach the API server. It is apart from package
// service because the client library is most of a small program: those that talk to
// no API server do not link it.
package apiserver

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config returns how to reach the API server: by a kubeconfig file, or as the pod
// that the program runs in if the path is empty.
func Config(kubeconfig, userAgent string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; run in a pod or give --kubeconfig", err)
	}
	config.UserAgent = userAgent
	return config, nil
}
