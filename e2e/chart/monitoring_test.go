package chart

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// serviceMonitor has the fields of the Prometheus operator's ServiceMonitor that the
// chart uses, or that tests set through values.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []scrapeEndpoint     `json:"endpoints"`
	} `json:"spec"`
}

type scrapeEndpoint struct {
	Port          string         `json:"port"`
	Interval      string         `json:"interval,omitempty"`
	ScrapeTimeout string         `json:"scrapeTimeout,omitempty"`
	Scheme        string         `json:"scheme,omitempty"`
	HonorLabels   bool           `json:"honorLabels,omitempty"`
	Relabelings   []relabeling   `json:"relabelings,omitempty"`
	TLSConfig     map[string]any `json:"tlsConfig,omitempty"`
	BasicAuth     map[string]any `json:"basicAuth,omitempty"`
}

type relabeling struct {
	Action       string   `json:"action,omitempty"`
	Regex        string   `json:"regex,omitempty"`
	SourceLabels []string `json:"sourceLabels,omitempty"`
	TargetLabel  string   `json:"targetLabel,omitempty"`
}

// prometheusRule is the same of a PrometheusRule.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ruleFile `json:"spec"`
}

// ruleFile is a file of rules of Prometheus.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

// rule is a recording rule or an alert.
type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// DeepCopyObject makes it a runtime.Object; nobody changes it.
func (m *serviceMonitor) DeepCopyObject() runtime.Object { c := *m; return &c }

// DeepCopyObject makes it a runtime.Object; nobody changes it.
func (r *prometheusRule) DeepCopyObject() runtime.Object { c := *r; return &c }

// decodeExtension decodes an object of the Prometheus operator, whose types the
// scheme lacks. A field that is not above is an error.
func decodeExtension(manifest []byte) (runtime.Object, error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(manifest, &kind); err != nil {
		return nil, err
	}
	var object runtime.Object
	switch kind.APIVersion + " " + kind.Kind {
	case "monitoring.coreos.com/v1 ServiceMonitor":
		object = &serviceMonitor{}
	case "monitoring.coreos.com/v1 PrometheusRule":
		object = &prometheusRule{}
	case "cert-manager.io/v1 Certificate", "cert-manager.io/v1 Issuer":
		object = &unstructured.Unstructured{}
	default:
		return nil, fmt.Errorf("%s %s is of an unknown kind", kind.APIVersion, kind.Kind)
	}
	return object, yaml.UnmarshalStrict(manifest, object)
}
