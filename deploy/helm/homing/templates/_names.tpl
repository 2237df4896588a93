{{- define "homing.name" -}}
{{- if contains "homing" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-homing" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "homing.selector" -}}
app.kubernetes.io/name: homing
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "homing.labels" -}}
{{ include "homing.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "homing.workersNamespace" -}}
{{ .Values.workers.namespace | default .Release.Namespace }}
{{- end }}

{{- define "homing.gateways" -}}
- namespaceSelector:
    matchLabels: {{- toYaml .Values.picker.gateways | nindent 6 }}
- namespaceSelector:
    matchLabels: { kubernetes.io/metadata.name: {{ .Release.Namespace | quote }} }
  podSelector:
    matchExpressions:
      - { key: gateway.networking.k8s.io/gateway-name, operator: Exists }
{{- end }}
