{{/* The name in the labels that select the pods. */}}
{{- define "apportion.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The prefix of all object names; 47 leaves room for "-kubelet-plugin". */}}
{{- define "apportion.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 47 | trimSuffix "-" }}
{{- else if contains (include "apportion.name" .) .Release.Name }}
{{- .Release.Name | trunc 47 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "apportion.name" .) | trunc 47 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The name of the kubelet plugin's DaemonSet, roles and policy. */}}
{{- define "apportion.plugin" -}}
{{- include "apportion.fullname" . }}-kubelet-plugin
{{- end }}

{{- define "apportion.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "apportion.plugin" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name must be set when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The labels that select the pods of one part of the chart, and those of all its
objects: a list of the root context and the part. */}}
{{- define "apportion.selectorLabelsOf" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "apportion.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "apportion.labelsOf" -}}
{{- $root := index . 0 -}}
{{ include "apportion.selectorLabelsOf" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "apportion.selectorLabels" -}}
{{ include "apportion.selectorLabelsOf" (list . "kubelet-plugin") }}
{{- end }}

{{- define "apportion.labels" -}}
{{ include "apportion.labelsOf" (list . "kubelet-plugin") }}
{{- end }}

{{- define "apportion.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{/* The class of MIG partitions: gpu.example.com has mig.example.com. */}}
{{- define "apportion.migClass" -}}
mig.{{ join "." (rest (splitList "." .Values.driverName)) }}
{{- end }}

{{/* The folder of the plugin's socket and records, on the host and in the container. */}}
{{- define "apportion.dataFolder" -}}
{{ trimSuffix "/" .Values.kubeletRootDir }}/plugins/{{ .Values.driverName }}
{{- end }}

{{/* The folder in which the kubelet finds plugins. Linux allows a socket path
of 107 bytes, and a longer one would fail only on the node. */}}
{{- define "apportion.registryFolder" -}}
{{- $folder := printf "%s/plugins_registry" (trimSuffix "/" .Values.kubeletRootDir) }}
{{- $socket := printf "%s/%s-reg.sock" $folder .Values.driverName }}
{{- if gt (len $socket) 107 }}
{{- fail (printf "the socket %s has %d bytes, and Linux allows 107: shorten driverName or kubeletRootDir" $socket (len $socket)) }}
{{- end }}
{{- $folder }}
{{- end }}

{{/* Where the fake machine of a node is, on the host and in all containers. */}}
{{- define "apportion.fakeMachine" -}}
/var/lib/apportion/fake
{{- end }}

{{/* The folder on the host under which the NVIDIA driver is installed: a fake machine has
one of its own. */}}
{{- define "apportion.hostDriverRoot" -}}
{{- if .Values.fake.enabled }}{{ include "apportion.fakeMachine" . }}/root{{ else }}{{ .Values.nvidiaDriverRoot }}{{ end }}
{{- end }}

{{/* The same folder as containers see it. A fake machine is at the same path as on the
host, as its NVML library reads and writes the machine. */}}
{{- define "apportion.driverRoot" -}}
{{- if .Values.fake.enabled }}{{ include "apportion.hostDriverRoot" . }}{{ else }}/driver-root{{ end }}
{{- end }}

{{/* The mounts of the driver root and of the GPUs' device nodes: a list of the root context
and whether the container changes GPUs, which for fake ones takes writing to a file. */}}
{{- define "apportion.driverRootMounts" -}}
{{- $root := index . 0 -}}
{{- $fake := $root.Values.fake.enabled -}}
- name: driver-root
  mountPath: {{ if $fake }}{{ include "apportion.fakeMachine" $root }}{{ else }}{{ include "apportion.driverRoot" $root }}{{ end }}
  readOnly: {{ not (and $fake (index . 1)) }}
  # A driver that is mounted there later is seen.
  mountPropagation: HostToContainer
# Not read-only: the container runtime may have to make /dev/mqueue in it.
- name: dev
  mountPath: /dev
{{- end }}

{{/* Their volumes. */}}
{{- define "apportion.driverRootVolumes" -}}
- name: driver-root
  hostPath:
    path: {{ if .Values.fake.enabled }}{{ include "apportion.fakeMachine" . }}{{ else }}{{ .Values.nvidiaDriverRoot }}{{ end }}
    type: DirectoryOrCreate
- name: dev
  hostPath:
    path: /dev
    type: Directory
{{- end }}

{{/* Makes the fake machine before a pod's containers start. Pods that do so at the same
time wait for each other, and all but the first leave it as it is. */}}
{{- define "apportion.fakeInitContainer" -}}
- name: fake-machine
  image: {{ include "apportion.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/bin/apportion, fake, create]
  args:
    - --machine={{ include "apportion.fakeMachine" . }}
    - --node=$(NODE_NAME)
    - {{ printf "--gpus=%s" .Values.fake.gpus | quote }}
    - --driver-version={{ .Values.fake.driverVersion }}
  env:
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
  securityContext:
    # It makes device nodes.
    privileged: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
      add: [MKNOD]
  terminationMessagePath: /tmp/termination-log
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - name: driver-root
      mountPath: {{ include "apportion.fakeMachine" . }}
{{- end }}

{{/* The plugin's flags about what of the GPUs is offered, as environment variables.
What a value leaves to the plugin is not set. */}}
{{- define "apportion.policyEnv" -}}
{{- if not .Values.partitions.enabled }}
- name: NO_PARTITIONS
  value: "true"
{{- end }}
{{- with .Values.sharing }}
{{- if not .enabled }}
- name: NO_SHARES
  value: "true"
{{- end }}
{{- if .maxShares }}
- name: SHARING_MAX_SHARES
  value: {{ int .maxShares | quote }}
{{- end }}
{{- if .minMemory }}
- name: SHARING_MIN_MEMORY
  value: {{ .minMemory | quote }}
{{- end }}
{{- if .reservedMemory }}
- name: SHARING_RESERVED_MEMORY
  value: {{ .reservedMemory | quote }}
{{- end }}
{{- if .products }}
- name: SHARING_PRODUCTS
  value: {{ toJson .products | quote }}
{{- end }}
{{- end }}
{{- with .Values.ignoreXIDs }}
- name: IGNORE_XIDS
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}

{{/* The update strategy of a DaemonSet of which a node can have one pod at a time: a
list of the root context and what the pod runs. */}}
{{- define "apportion.updateStrategy" -}}
{{- $strategy := (index . 0).Values.updateStrategy }}
{{- if ne (toString (dig "rollingUpdate" "maxSurge" 0 $strategy)) "0" }}
{{- fail (printf "updateStrategy.rollingUpdate.maxSurge: a node can run one %s at a time, set maxUnavailable instead" (index . 1)) }}
{{- end }}
{{- toYaml $strategy }}
{{- end }}

{{/* The config of a DeviceClass: a list of the root context and the parameters. */}}
{{- define "apportion.classConfig" -}}
{{- $root := index . 0 }}
{{- with index . 1 }}
config:
  - opaque:
      driver: {{ $root.Values.driverName }}
      parameters:
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}
