package suite

import (
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/e2e/cluster"
)

// TestThePluginCannotWriteAnotherNodesSlices acts with the token of node-a's
// plugin.
func TestThePluginCannotWriteAnotherNodesSlices(t *testing.T) {
	n, _ := node(t, "node-a")
	plugin := asPlugin(t, n)
	own, others := slicesOf(t, "node-a")[0], slicesOf(t, "node-b")[0]

	own.Annotations = map[string]string{"e2e": "own"}
	if _, err := plugin.ResourceV1().ResourceSlices().Update(t.Context(), &own, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("it cannot write its own node's slice: %v", err)
	}
	others.Annotations = map[string]string{"e2e": "other"}
	_, err := plugin.ResourceV1().ResourceSlices().Update(t.Context(), &others, metav1.UpdateOptions{})
	wantForbidden(t, "update of another node's slice", err)
	err = plugin.ResourceV1().ResourceSlices().Delete(t.Context(), others.Name, metav1.DeleteOptions{})
	wantForbidden(t, "deletion of another node's slice", err)
	_, err = plugin.ResourceV1().ResourceSlices().Create(t.Context(), &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-forged"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driverName, NodeName: ptr.To("node-b"),
			Pool: resourceapi.ResourcePool{Name: "node-b", Generation: 99, ResourceSliceCount: 1},
		},
	}, metav1.CreateOptions{})
	wantForbidden(t, "creation of a slice for another node", err)
	own.Spec.NodeName = nil
	own.Spec.AllNodes = ptr.To(true)
	own.Name, own.ResourceVersion, own.UID = "e2e-all-nodes", "", ""
	_, err = plugin.ResourceV1().ResourceSlices().Create(t.Context(), &own, metav1.CreateOptions{})
	wantForbidden(t, "creation of a slice for all nodes", err)
}

func wantForbidden(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s is permitted", what)
	} else if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("%s: %v, want it forbidden", what, err)
	}
}

// asPlugin returns a client with a token like the one in the plugin's pod.
func asPlugin(t *testing.T, n *cluster.Node) kubernetes.Interface {
	t.Helper()
	pod := pluginPod(t, n)
	token, err := client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, &authv1.TokenRequest{
		Spec: authv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To[int64](600),
			BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(restConfig)
	config.BearerToken = token.Status.Token
	plugin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return plugin
}
