package karpenter_test

import (
	"fmt"
	"log"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"apportion.dev/apportion/pkg/plan/catalog"
	"apportion.dev/apportion/pkg/plan/catalog/karpenter"
)

// A cloud provider does this once for each instance type, in GetInstanceTypes.
func ExampleDynamicResources() {
	found, err := catalog.Lookup("p5.48xlarge")
	if err != nil {
		log.Fatal(err)
	}
	// The versions are those of the image from which nodes start.
	templates, err := catalog.Templates(found, catalog.Policy{DriverVersion: "580.95.05", CUDADriverVersion: "13.0"})
	if err != nil {
		log.Fatal(err)
	}
	it := &cloudprovider.InstanceType{Name: found.Name}
	if it.DynamicResources, err = karpenter.DynamicResources(templates); err != nil {
		log.Fatal(err)
	}
	for _, s := range it.DynamicResources.ResourceSliceTemplates {
		fmt.Printf("%s: driver %s: %d counter sets, %d devices\n", it.Name, s.Driver.Value(), len(s.SharedCounters), len(s.Devices))
	}
	// Output:
	// p5.48xlarge: driver gpu.apportion.dev: 8 counter sets, 0 devices
	// p5.48xlarge: driver gpu.apportion.dev: 0 counter sets, 52 devices
	// p5.48xlarge: driver gpu.apportion.dev: 0 counter sets, 52 devices
	// p5.48xlarge: driver gpu.apportion.dev: 0 counter sets, 52 devices
	// p5.48xlarge: driver gpu.apportion.dev: 0 counter sets, 52 devices
}
