package ownership

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// WorkloadOf is what a pod was made by, as far as the pod itself says it: its
// controller, of a ReplicaSet that a Deployment made the Deployment. It is nil for a
// pod without a controller, and the Job for a pod of a CronJob, which only the Job
// knows.
func WorkloadOf(pod *corev1.Pod) *Workload {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return nil
	}
	w := &Workload{APIVersion: controller.APIVersion, Kind: controller.Kind, Name: controller.Name}
	if controller.Kind == "ReplicaSet" && group(controller.APIVersion) == appsv1.GroupName {
		if name, ok := deploymentOf(controller.Name, pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]); ok {
			w.Kind, w.Name = "Deployment", name
		}
	}
	return w
}

// deploymentOf takes the name of a Deployment from that of its ReplicaSet, which the
// deployment controller makes of it and the hash that pods have as a label.
func deploymentOf(replicaSet, hash string) (string, bool) {
	if hash == "" || len(replicaSet) >= validation.DNS1123SubdomainMaxLength {
		// The controller cuts a name that gets too long.
		return "", false
	}
	name, ok := strings.CutSuffix(replicaSet, "-"+hash)
	return name, ok && name != ""
}

func group(apiVersion string) string {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}
