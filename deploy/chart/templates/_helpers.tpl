{{- define "aliquot.namespace" -}}{{ .Values.namespace.name }}{{- end }}

{{- define "aliquot.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}

{{- /* The user name of an account of this chart, as admission policies see it. Takes the root and the account's name. */ -}}
{{- define "aliquot.user" -}}system:serviceaccount:{{ index . 0 | include "aliquot.namespace" }}:{{ index . 1 }}{{- end }}

{{- define "aliquot.labels" -}}
app.kubernetes.io/part-of: aliquot
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "aliquot.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether objects of the Prometheus operator are made. Takes the root and a value of monitoring; says true, or nothing. */ -}}
{{- define "aliquot.monitored" -}}
{{- $enabled := (index . 1).enabled }}
{{- if or (eq (toString $enabled) "true") (and (eq (toString $enabled) "auto") ((index . 0).Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}true{{ end }}
{{- end }}

{{- /* The nodes that a component's pods are for, and what they tolerate there. */ -}}
{{- define "aliquot.nodes" -}}
nodeSelector:
  {{- dict "kubernetes.io/os" "linux" "kubernetes.io/arch" "amd64" | merge (deepCopy (default dict .nodeSelector)) | toYaml | nindent 2 }}
{{- with .tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* How a pod that is told so finds the API server. */ -}}
{{- define "aliquot.apiServer" -}}
{{- with .Values.apiServer }}
{{- if .host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ .host | quote }}}
{{- end }}
{{- if .port }}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .port | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{- /* What a component's NetworkPolicy lets through: metrics at a port, and what aliquot.egress does. */ -}}
{{- define "aliquot.traffic" -}}
policyTypes: [Ingress, Egress]
ingress:
- ports:
  - {protocol: TCP, port: {{ .port }}}
  {{- with .root.Values.networkPolicy.metricsFrom }}
  from:
  - namespaceSelector:
      matchLabels:
        {{- toYaml . | nindent 8 }}
  {{- range $.root.Values.networkPolicy.metricsFromCIDRs }}
  - ipBlock: {cidr: {{ . }}}
  {{- end }}
  {{- end }}
{{ include "aliquot.egress" .root }}
{{- end }}

{{- /* Connections to the ports of API servers: on any host, as a chart cannot know where they are, or within apiServer.cidrs. */ -}}
{{- define "aliquot.egress" -}}
egress:
- ports:
  {{- range .Values.apiServer.ports }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
  {{- with .Values.apiServer.port }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
  {{- with .Values.apiServer.cidrs }}
  to:
  {{- range . }}
  - ipBlock: {cidr: {{ . | quote }}}
  {{- end }}
  {{- end }}
{{- end }}

{{- /* A container that needs nothing of its node. */ -}}
{{- define "aliquot.confined" -}}
runAsNonRoot: true
runAsUser: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* How long a program may not answer until it is started anew. One that starts has as long. */ -}}
{{- define "aliquot.patience" -}}
initialDelaySeconds: 30
periodSeconds: 20
timeoutSeconds: 5
failureThreshold: 6
{{- end }}

{{- /* Labels of pods of gangs, as a list in CEL. */ -}}
{{- define "aliquot.gangs" -}}
["aliquot.dev/gang", "aliquot.dev/gang-min"]
{{- end }}

{{- /* What annotations say when a pod is made, by their names after aliquot.dev/, as a list in CEL: those of annotation.Fixed in host/kube. */ -}}
{{- define "aliquot.asked" -}}
["gpu", "memory", "devices", "class", "weight", "containers", "max-latency-class", "queue", "preemptible", "same-topology", "prefer-topology", "restart-time"]
{{- end }}
