// Package service is what the programs that run until they are told to end have in
// common: signals, logging, and where the API server is.
package service

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
)

// Main runs a program until it ends or is told to by SIGINT or SIGTERM, and exits
// with the status that it returns.
func Main(run func(ctx context.Context, args []string, environment func(string) (string, bool), stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.LookupEnv, os.Stderr)
	stop()
	logs.FlushLogs()
	os.Exit(code)
}

// CheckLogging says what is wrong with the format, in the words of the flags.
func CheckLogging(c *logsapi.LoggingConfiguration) error {
	if c.Format != logsapi.DefaultLogFormat && c.Format != logsapi.JSONLogFormat {
		return fmt.Errorf("--logging-format %q: known are %s and %s", c.Format, logsapi.DefaultLogFormat, logsapi.JSONLogFormat)
	}
	return nil
}

// ApplyLogging makes the configuration that of the whole process.
func ApplyLogging(c *logsapi.LoggingConfiguration) error {
	if err := logsapi.ValidateAndApply(c, nil); err != nil {
		return fmt.Errorf("logging: %w", err)
	}
	return nil
}

// APIServer returns how to reach the API server: by a kubeconfig file, or as the pod
// that the program runs in if the path is empty.
func APIServer(kubeconfig, userAgent string) (*rest.Config, error) {
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
