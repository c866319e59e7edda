package main

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // Kubeconfigs may name its providers.
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clients speak to one cluster.
type clients struct {
	typed kubernetes.Interface
	// metadata reads objects without what is in them.
	metadata metadata.Interface
}

// connect makes the clients of the cluster that a kubeconfig names, which is found as
// kubectl finds it; in a pod without one, the clients of its own cluster.
func connect(kubeconfig, context string) (*clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	// The warning about files that are not there is of no use to anybody here.
	rules.WarnIfAllMissing = false
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: give --kubeconfig, or --socket on a node")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	// Warnings of the API server would appear in the middle of the table.
	config.WarningHandler, config.WarningHandlerWithContext = nil, rest.NoWarnings{}
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.QPS, config.Burst = 50, 100
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return &clients{typed: typed, metadata: metadataClient}, nil
}
