package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

// compilePolicy compiles a policy with the API server's own library.
func compilePolicy(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	var variables []cel.NamedExpressionAccessor
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for _, c := range policy.Spec.MatchConditions {
		conditions = append(conditions, &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression})
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler.CompileAndStoreVariables(variables, declared, environment.StoredExpressions)
	compile := func(expressions []cel.ExpressionAccessor, declared cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		compiled := compiler.CompileCondition(expressions, declared, environment.StoredExpressions)
		for _, err := range compiled.CompilationErrors() {
			t.Errorf("compile the policy: %v", err)
		}
		return compiled
	}
	return validating.NewValidator(
		compile(validations, declared),
		matchconditions.NewMatcher(compile(conditions, declared), policy.Spec.FailurePolicy, "policy", "validate", policy.Name),
		compile(nil, declared),
		compile(messages, cel.OptionalVariableDeclarations{}),
		policy.Spec.FailurePolicy, nil)
}

func slice(driver string, node *string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: "slice"},
		Spec:       resourcev1.ResourceSliceSpec{Driver: driver, NodeName: node},
	}
}

// TestPolicyDecides runs the rendered policy as the API server would.
func TestPolicyDecides(t *testing.T) {
	objects := decode(t, mustRender(t, release, ""))
	policy := compilePolicy(t, only[*admissionv1.ValidatingAdmissionPolicy](t, objects))

	const driver, account = "gpu.apportion.dev", "system:serviceaccount:apportion-system:apportion-kubelet-plugin"
	onA := map[string][]string{"authentication.kubernetes.io/node-name": {"node-a"}}
	const noNode = "the account of the GPU driver may be used only with the token of a pod that runs on a node"
	const otherNode = `the GPU driver on node "node-a" may not change a ResourceSlice of node "node-b"`
	const allNodes = `the GPU driver on node "node-a" may not change a ResourceSlice of node ""`
	const otherDriver = "the GPU driver gpu.apportion.dev may not change a ResourceSlice of driver gpu.example.com"
	mine, theirs := slice(driver, new("node-a")), slice(driver, new("node-b"))
	// What the plugin creates, as a dry run, to see which fields the cluster keeps.
	probe := slice(driver, new("node-a"))
	probe.ObjectMeta = metav1.ObjectMeta{GenerateName: "apportion-probe-"}
	for _, test := range []struct {
		name      string
		user      string
		extra     map[string][]string
		operation admission.Operation
		old, new  runtime.Object
		denied    []string
	}{
		{"create own", account, onA, admission.Create, nil, mine, nil},
		{"create a probe", account, onA, admission.Create, nil, probe, nil},
		{"update own", account, onA, admission.Update, mine, mine, nil},
		{"delete own", account, onA, admission.Delete, mine, nil, nil},
		{"create another node's", account, onA, admission.Create, nil, theirs, []string{otherNode}},
		{"update another node's", account, onA, admission.Update, theirs, theirs, []string{otherNode}},
		{"delete another node's", account, onA, admission.Delete, theirs, nil, []string{otherNode}},
		{"create one of no node", account, onA, admission.Create, nil, slice(driver, nil), []string{allNodes}},
		{"create another driver's", account, onA, admission.Create, nil, slice("gpu.example.com", new("node-a")), []string{otherDriver}},
		{"delete another driver's", account, onA, admission.Delete, slice("gpu.example.com", new("node-a")), nil, []string{otherDriver}},
		{"token without node", account, nil, admission.Delete, slice(driver, nil), nil, []string{noNode}},
		{"token without node, named slice", account, map[string][]string{"authentication.kubernetes.io/node-name": {}}, admission.Create, nil, theirs,
			[]string{noNode, `the GPU driver on node "" may not change a ResourceSlice of node "node-b"`}},
		{"somebody else", "system:serviceaccount:default:apportion-kubelet-plugin", nil, admission.Delete, theirs, nil, nil},
		{"the garbage collector", "system:serviceaccount:kube-system:generic-garbage-collector", nil, admission.Delete, mine, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			gvk := resourcev1.SchemeGroupVersion.WithKind("ResourceSlice")
			gvr := resourcev1.SchemeGroupVersion.WithResource("resourceslices")
			attributes := admission.NewAttributesRecord(test.new, test.old, gvk, "", "slice", gvr, "", test.operation, nil, false,
				&user.DefaultInfo{Name: test.user, Extra: test.extra})
			versioned, err := admission.NewVersionedAttributes(attributes, gvk, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
			if err != nil {
				t.Fatal(err)
			}
			result := policy.Validate(t.Context(), gvr, versioned, nil, nil, celconfig.RuntimeCELCostBudget, nil)
			var denied []string
			for _, decision := range result.Decisions {
				if decision.Action == validating.ActionDeny {
					denied = append(denied, decision.Message)
				}
			}
			if diff := cmp.Diff(test.denied, denied); diff != "" {
				t.Errorf("denials (-want +got):\n%s", diff)
			}
		})
	}
}
