package suite

// Manifests of the tests. Pods sleep until they are deleted, and end at once
// when they are.

// gpuClaimTemplate is a template for claims with one GPU (or .Count), chosen by
// the expression .Select if there is one.
const gpuClaimTemplate = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: {{.Name}}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.apportion.dev
          {{- with .Count}}
          count: {{.}}
          {{- end}}
          {{- with .Select}}
          selectors:
          - cel:
              expression: {{.}}
          {{- end}}
`

// podOfTemplate is a pod with one container and one claim from a template.
const podOfTemplate = `
apiVersion: v1
kind: Pod
metadata:
  name: {{.Name}}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: {{or .RestartPolicy "Never"}}
  {{- with .Node}}
  nodeSelector:
    kubernetes.io/hostname: {{.}}
  {{- end}}
  containers:
  - name: work
    image: apportion.dev/busybox:dev
    command: ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"]
    resources:
      claims:
      - name: gpu
  resourceClaims:
  - name: gpu
    resourceClaimTemplateName: {{.Template}}
`

// namedClaim is a claim with one GPU that several pods may use.
const namedClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: {{.Name}}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.apportion.dev
`

// twoContainers is a pod of two containers that share the claim .Claim.
const twoContainers = `
apiVersion: v1
kind: Pod
metadata:
  name: {{.Name}}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  {{- range $c := .Containers}}
  - name: {{$c}}
    image: apportion.dev/busybox:dev
    command: ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"]
    resources:
      claims:
      - name: gpu
  {{- end}}
  resourceClaims:
  - name: gpu
    resourceClaimName: {{.Claim}}
`

// podOfTwoClaims has one container with both claims.
const podOfTwoClaims = `
apiVersion: v1
kind: Pod
metadata:
  name: {{.Name}}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: work
    image: apportion.dev/busybox:dev
    command: ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"]
    resources:
      claims:
      - name: first
      - name: second
  resourceClaims:
  - name: first
    resourceClaimTemplateName: {{.Template}}
  - name: second
    resourceClaimTemplateName: {{.Template}}
`

// allGPUs is a template for claims with every GPU of a node.
const allGPUs = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: all
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.apportion.dev
          allocationMode: All
          selectors:
          - cel:
              expression: device.attributes["gpu.apportion.dev"].productName == "NVIDIA A100-SXM4-40GB"
`

// firstAvailable is a template for claims with a product that does not exist or
// else any GPU with 40Gi at least.
const firstAvailable = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: first-available
spec:
  spec:
    devices:
      requests:
      - name: gpu
        firstAvailable:
        - name: dream
          deviceClassName: gpu.apportion.dev
          selectors:
          - cel:
              expression: device.attributes["gpu.apportion.dev"].productName == "NVIDIA Z9000"
        - name: large
          deviceClassName: gpu.apportion.dev
          selectors:
          - cel:
              expression: device.capacity["gpu.apportion.dev"].memory.compareTo(quantity("40Gi")) >= 0
`

// adminClaim is a template for claims that look at every GPU of node-b.
const adminClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: admin
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.apportion.dev
          allocationMode: All
          adminAccess: true
          capacity:
            requests:
              memory: "0"
          selectors:
          - cel:
              expression: device.attributes["gpu.apportion.dev"].productName == "NVIDIA A100-SXM4-40GB"
`

// devicePluginPod asks for a GPU as pods did for the device plugin.
const devicePluginPod = `
apiVersion: v1
kind: Pod
metadata:
  name: {{.Name}}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: work
    image: apportion.dev/busybox:dev
    command: ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"]
    resources:
      limits:
        nvidia.com/gpu: 1
`

// freeRider is a template for claims that ask for none of a GPU's memory, without
// admin access.
const freeRider = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: free-rider
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.apportion.dev
          capacity:
            requests:
              memory: "0"
          selectors:
          - cel:
              expression: device.attributes["gpu.apportion.dev"].productName == "NVIDIA A100-SXM4-40GB"
`

// deployment has .Replicas pods, each with a claim from a template.
const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{.Name}}
spec:
  replicas: {{.Replicas}}
  selector:
    matchLabels:
      app: {{.Name}}
  template:
    metadata:
      labels:
        app: {{.Name}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: work
        image: apportion.dev/busybox:dev
        command: ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]
        resources:
          claims:
          - name: gpu
      resourceClaims:
      - name: gpu
        resourceClaimTemplateName: {{.Template}}
`
