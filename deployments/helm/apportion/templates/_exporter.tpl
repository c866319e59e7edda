{{/* The name of the exporter's objects; its Service's is the job in Prometheus. */}}
{{- define "apportion.exporter" -}}
{{- include "apportion.fullname" . }}-exporter
{{- end }}

{{- define "apportion.exporterSelectorLabels" -}}
{{ include "apportion.selectorLabelsOf" (list . "exporter") }}
{{- end }}

{{- define "apportion.exporterLabels" -}}
{{ include "apportion.labelsOf" (list . "exporter") }}
{{- end }}

{{/* What asks the exporter whether it is alive: with TLS and authentication only
whether its port is open. */}}
{{- define "apportion.exporterProbe" -}}
{{- if .Values.exporter.webConfigSecret -}}
tcpSocket:
  port: metrics
{{- else -}}
httpGet:
  path: /healthz
  port: metrics
{{- end }}
{{- end }}

{{/* The exporter's endpoint in a ServiceMonitor, without what the values add to it or
replace of it. The labels of a series are those of who holds the device. The exporter's
own namespace, pod and container must not take their place, above all on the series of a
device that nobody holds, or several. */}}
{{- define "apportion.exporterEndpoint" -}}
port: metrics
interval: {{ .Values.exporter.serviceMonitor.interval }}
honorLabels: true
relabelings:
  - action: labeldrop
    regex: namespace|pod|container
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
{{- end }}
