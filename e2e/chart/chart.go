// Package chart renders the project's Helm chart through helm's own library,
// as "helm template" does, so that a test cluster without the helm program gets
// the very manifests that helm would install. It talks to no cluster.
package chart

import (
	"bytes"
	"fmt"
	"path"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

// kubeVersion is the Kubernetes version that the manifests are rendered for:
// that of the test cluster.
const kubeVersion = "v1.37.2"

// Release is what "helm install NAME --namespace NAMESPACE" says of a release.
type Release struct {
	Name, Namespace string
}

// Render renders the chart in chartDir for a first installation, with values
// over the chart's own, into one YAML stream in the order in which helm
// installs. As with helm, the namespace itself is not among the manifests.
// Values that the chart's schema does not allow are an error that names them.
func Render(chartDir string, r Release, values map[string]any) ([]byte, error) {
	manifests, err := render(chartDir, r, values)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", chartDir, err)
	}
	return manifests, nil
}

func render(chartDir string, r Release, values map[string]any) ([]byte, error) {
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	if wants := chart.Metadata.KubeVersion; wants != "" && !chartutil.IsCompatibleRange(wants, version.String()) {
		return nil, fmt.Errorf("the chart wants Kubernetes %s, which %s is not", wants, version)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version

	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	for name := range files {
		if path.Base(name) == "NOTES.txt" {
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, capabilities.APIVersions, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	if len(hooks) > 0 {
		return nil, fmt.Errorf("%s is a helm hook, which only helm itself can run", hooks[0].Path)
	}
	var stream bytes.Buffer
	for _, manifest := range manifests {
		fmt.Fprintf(&stream, "---\n# Source: %s\n%s\n", manifest.Name, manifest.Content)
	}
	return stream.Bytes(), nil
}
