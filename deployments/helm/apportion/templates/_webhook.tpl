{{/* The name of the webhook's objects. */}}
{{- define "apportion.webhook" -}}
{{- include "apportion.fullname" . }}-webhook
{{- end }}

{{- define "apportion.webhookSelectorLabels" -}}
{{ include "apportion.selectorLabelsOf" (list . "webhook") }}
{{- end }}

{{- define "apportion.webhookLabels" -}}
{{ include "apportion.labelsOf" (list . "webhook") }}
{{- end }}

{{/* A webhook of one resource, called only for objects with parameters for this
driver: a list of the root context, resource, scope, operations, where the
parameters are, and the failure policy. */}}
{{- define "apportion.webhookOf" -}}
{{- $root := index . 0 -}}
- name: {{ index . 1 }}.{{ $root.Values.driverName }}
  rules:
    - apiGroups: [resource.k8s.io]
      apiVersions: [v1]
      resources: [{{ index . 1 }}]
      scope: {{ index . 2 }}
      operations: {{ index . 3 }}
  matchPolicy: Equivalent
  matchConditions:
    - name: has-parameters-for-the-driver
      expression: {{ index . 4 }}.orValue([]).exists(c, c.?opaque.?driver.orValue("") == "{{ $root.Values.driverName }}")
  failurePolicy: {{ index . 5 }}
  timeoutSeconds: {{ $root.Values.webhook.timeoutSeconds }}
  sideEffects: None
  admissionReviewVersions: [v1]
  # The webhook itself adds the caBundle, or cert-manager.
  clientConfig:
    service:
      namespace: {{ $root.Release.Namespace }}
      name: {{ include "apportion.webhook" $root }}
      path: /validate
{{- end }}
