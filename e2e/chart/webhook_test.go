package chart

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// TestWebhookIsOne: the pods, the Service, the Secret, the account and the
// configuration name each other.
func TestWebhookIsOne(t *testing.T) {
	for _, test := range []struct {
		release      Release
		values, name string
	}{
		{release, "", "apportion-webhook"},
		{Release{Name: "prod", Namespace: "gpu-system"}, "driverName: gpu.nvidia.com", "prod-apportion-webhook"},
		{Release{Name: "a", Namespace: "b"}, "fullnameOverride: gpus", "gpus-webhook"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := component(t, decode(t, mustRender(t, test.release, test.values)), "webhook")
			pod := only[*appsv1.Deployment](t, objects).Spec.Template
			service, secret := only[*corev1.Service](t, objects), only[*corev1.Secret](t, objects)
			role, clusterRole := only[*rbacv1.Role](t, objects), only[*rbacv1.ClusterRole](t, objects)
			configuration := only[*admissionv1.ValidatingWebhookConfiguration](t, objects)

			for _, name := range []string{service.Name, secret.Name, pod.Spec.ServiceAccountName, configuration.Name, role.Name, clusterRole.Name} {
				if name != test.name {
					t.Errorf("an object has the name %s, want %s", name, test.name)
				}
			}
			if len(secret.Data)+len(secret.StringData) > 0 {
				t.Error("an upgrade of the chart would replace the certificates")
			}
			for _, flag := range []string{
				"--namespace=" + test.release.Namespace, "--service-name=" + test.name, "--secret-name=" + test.name, "--configuration-name=" + test.name,
			} {
				if !slices.Contains(pod.Spec.Containers[0].Args, flag) {
					t.Errorf("the flag %s is not among %q", flag, pod.Spec.Containers[0].Args)
				}
			}
			budget := only[*policyv1.PodDisruptionBudget](t, objects)
			for what, selector := range map[string]map[string]string{"Service": service.Spec.Selector, "PodDisruptionBudget": budget.Spec.Selector.MatchLabels} {
				if !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
					t.Errorf("the %s does not select the pods", what)
				}
			}
			rules := map[string][]rbacv1.PolicyRule{"Role": role.Rules, "ClusterRole": clusterRole.Rules}
			want := map[string][]rbacv1.PolicyRule{
				"Role":        {{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{test.name}, Verbs: []string{"get", "list", "watch", "update"}}},
				"ClusterRole": {{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"}, ResourceNames: []string{test.name}, Verbs: []string{"get", "list", "watch", "patch"}}},
			}
			if diff := cmp.Diff(want, rules); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
			subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: test.name, Namespace: test.release.Namespace}}
			if diff := cmp.Diff([][]rbacv1.Subject{subjects, subjects}, [][]rbacv1.Subject{
				only[*rbacv1.RoleBinding](t, objects).Subjects, only[*rbacv1.ClusterRoleBinding](t, objects).Subjects,
			}); diff != "" {
				t.Errorf("who has the rights (-want +got):\n%s", diff)
			}
			for _, webhook := range configuration.Webhooks {
				if s := webhook.ClientConfig.Service; s.Namespace != test.release.Namespace || s.Name != test.name || *s.Path != "/validate" {
					t.Errorf("webhook %s calls %+v", webhook.Name, s)
				}
			}
		})
	}
}

func TestWebhookCanDoNothingElse(t *testing.T) {
	spec := only[*appsv1.Deployment](t, decode(t, mustRender(t, release, ""))).Spec.Template.Spec
	if spec.HostNetwork || spec.HostPID || spec.HostIPC || len(spec.Volumes) > 0 {
		t.Error("the pod has something of the host")
	}
	if c := spec.SecurityContext; !*c.RunAsNonRoot || *c.RunAsUser == 0 || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context %+v", c)
	}
	c := spec.Containers[0].SecurityContext
	if *c.Privileged || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 {
		t.Errorf("security context of the container %+v", c)
	}
}

// TestWebhookWithCertManager: cert-manager writes the certificate and the caBundle, so
// the pods have no rights and no token.
func TestWebhookWithCertManager(t *testing.T) {
	for _, test := range []struct {
		values, kind, issuer string
		extensions           []string
	}{
		{"{enabled: true}", "Issuer", "apportion-webhook", []string{
			"Certificate apportion-webhook", "Certificate apportion-webhook-ca", "Issuer apportion-webhook", "Issuer apportion-webhook-self-signed"}},
		{"{enabled: true, issuerRef: {kind: ClusterIssuer, name: internal}}", "ClusterIssuer", "internal", []string{"Certificate apportion-webhook"}},
	} {
		objects := component(t, decode(t, mustRender(t, release, "webhook: {certManager: "+test.values+"}")), "webhook")
		if n := len(every[*rbacv1.Role](objects)) + len(every[*rbacv1.ClusterRole](objects)) + len(every[*corev1.Secret](objects)); n > 0 {
			t.Errorf("%d roles and Secrets", n)
		}
		var got []string
		for _, object := range every[*unstructured.Unstructured](objects) {
			got = append(got, object.GetKind()+" "+object.GetName())
			if object.GetKind() != "Certificate" || object.GetName() != "apportion-webhook" {
				continue
			}
			names, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "issuerRef", "kind")
			issuer, _, _ := unstructured.NestedString(object.Object, "spec", "issuerRef", "name")
			if !slices.Equal(names, []string{"apportion-webhook.apportion-system.svc"}) || kind != test.kind || issuer != test.issuer {
				t.Errorf("the certificate is for %q, of %s %s", names, kind, issuer)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(test.extensions, got); diff != "" {
			t.Errorf("objects of cert-manager (-want +got):\n%s", diff)
		}
		spec := only[*appsv1.Deployment](t, objects).Spec.Template.Spec
		if *spec.AutomountServiceAccountToken || !slices.Contains(spec.Containers[0].Args, "--certificate-dir=/certificates") ||
			spec.Containers[0].VolumeMounts[0].MountPath != "/certificates" || spec.Volumes[0].Secret.SecretName != "apportion-webhook-tls" {
			t.Errorf("the pods: token %t, args %q, volumes %+v", *spec.AutomountServiceAccountToken, spec.Containers[0].Args, spec.Volumes)
		}
		inject := only[*admissionv1.ValidatingWebhookConfiguration](t, objects).Annotations["cert-manager.io/inject-ca-from"]
		if inject != "apportion-system/apportion-webhook" {
			t.Errorf("the authority is taken from %q", inject)
		}
	}
}

// webhookRule is what of a webhook says when it is called and what if it is away.
type webhookRule struct {
	Rules   []admissionv1.RuleWithOperations
	Policy  admissionv1.FailurePolicyType
	Timeout int32
}

func TestWhatTheWebhookIsCalledFor(t *testing.T) {
	rule := func(resource string, scope admissionv1.ScopeType, operations ...admissionv1.OperationType) []admissionv1.RuleWithOperations {
		return []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{
			APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{resource}, Scope: &scope,
		}}}
	}
	for values, policy := range map[string]admissionv1.FailurePolicyType{
		"":                               admissionv1.Ignore,
		"webhook: {failurePolicy: Fail}": admissionv1.Fail,
	} {
		got := map[string]webhookRule{}
		for _, w := range only[*admissionv1.ValidatingWebhookConfiguration](t, decode(t, mustRender(t, release, values))).Webhooks {
			got[w.Name] = webhookRule{w.Rules, *w.FailurePolicy, *w.TimeoutSeconds}
			if *w.MatchPolicy != admissionv1.Equivalent || *w.SideEffects != admissionv1.SideEffectClassNone {
				t.Errorf("webhook %s: other versions are %s, side effects %s", w.Name, *w.MatchPolicy, *w.SideEffects)
			}
		}
		want := map[string]webhookRule{
			"resourceclaims.gpu.apportion.dev":         {rule("resourceclaims", admissionv1.NamespacedScope, admissionv1.Create), policy, 5},
			"resourceclaimtemplates.gpu.apportion.dev": {rule("resourceclaimtemplates", admissionv1.NamespacedScope, admissionv1.Create), policy, 5},
			"deviceclasses.gpu.apportion.dev":          {rule("deviceclasses", admissionv1.ClusterScope, admissionv1.Create, admissionv1.Update), admissionv1.Ignore, 5},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("values %q (-want +got):\n%s", values, diff)
		}
	}
}

// TestWebhookIsOffThePathOfOthers runs the conditions as the API server does: the
// webhook is called for objects with parameters for this driver, and no others.
func TestWebhookIsOffThePathOfOthers(t *testing.T) {
	const ours, theirs = `{opaque: {driver: gpu.apportion.dev, parameters: {}}}`, `{opaque: {driver: gpu.example.com, parameters: {}}}`
	claims := func(before, after string) map[string]bool {
		return map[string]bool{
			before + `{}` + after:                                                 false,
			before + `{devices: {}}` + after:                                      false,
			before + `{devices: {config: []}}` + after:                            false,
			before + `{devices: {config: [{requests: [a]}]}}` + after:             false,
			before + `{devices: {config: [` + theirs + `]}}` + after:              false,
			before + `{devices: {config: [` + theirs + `,` + ours + `]}}` + after: true,
		}
	}
	objects := map[string]map[string]bool{
		"resourceclaims.gpu.apportion.dev":         claims(`{spec: `, `}`),
		"resourceclaimtemplates.gpu.apportion.dev": claims(`{spec: {spec: `, `}}`),
		"deviceclasses.gpu.apportion.dev": {
			`{spec: {}}`:                         false,
			`{spec: {config: []}}`:               false,
			`{spec: {config: [` + theirs + `]}}`: false,
			`{spec: {config: [` + ours + `]}}`:   true,
		},
	}
	for _, w := range only[*admissionv1.ValidatingWebhookConfiguration](t, decode(t, mustRender(t, release, ""))).Webhooks {
		var expressions []cel.ExpressionAccessor
		for _, c := range w.MatchConditions {
			expressions = append(expressions, &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression})
		}
		compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		compiled := compiler.CompileCondition(expressions, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
		if errs := compiled.CompilationErrors(); len(errs) > 0 {
			t.Fatalf("webhook %s: %v", w.Name, errs)
		}
		matcher := matchconditions.NewMatcher(compiled, w.FailurePolicy, "webhook", "validating", w.Name)
		for text, want := range objects[w.Name] {
			result := matcher.Match(t.Context(), versioned(t, text), nil, nil)
			if result.Error != nil || result.Matches != want {
				t.Errorf("webhook %s is called for %s: %t, %v", w.Name, text, result.Matches, result.Error)
			}
		}
	}
}

// versioned is the creation of an object as the API server gives it to conditions.
func versioned(t *testing.T, text string) *admission.VersionedAttributes {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(content, &object.Object); err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "Any"}
	object.SetGroupVersionKind(kind)
	attributes := admission.NewAttributesRecord(object, nil, kind, "", "", kind.GroupVersion().WithResource("any"), "", admission.Create, nil, false, nil)
	versioned, err := admission.NewVersionedAttributes(attributes, kind, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	if err != nil {
		t.Fatal(err)
	}
	return versioned
}
