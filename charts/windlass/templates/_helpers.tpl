{{- /* Names, labels, images and the settings that all pods share. A release called windlass has resources called windlass-...; any other, NAME-windlass-... */ -}}
{{- define "windlass.name" -}}
{{- if contains "windlass" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-windlass" (.Release.Name | trunc 31 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- /* A duration such as 1h30m as whole seconds, rounded up. */ -}}
{{- define "windlass.seconds" -}}
{{- $ms := 0.0 }}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 }}
{{- $unit := regexFind "(ms|s|m|h)$" . }}
{{- $ms = addf $ms (mulf (trimSuffix $unit . | float64) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit)) }}
{{- end }}
{{- divf $ms 1000 | ceil | int }}
{{- end }}

{{- /* dict "root" . "component" "controller". A digest wins over a tag. With a moving tag, two pods of one Deployment could differ.
Without a registry, the repository must name one, as in registry.example/windlass/controller. */ -}}
{{- define "windlass.image" -}}
{{- $image := (get .root.Values .component).image }}
{{- $shared := .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- $tag := $image.tag | default $shared }}
{{- if and (not $image.digest) (eq $tag "latest") }}
{{- fail (printf "%s: must be a tag that is never moved, or %s.image.digest must be set (got latest)" (ternary (printf "%s.image.tag" .component) "image.tag" (eq $image.tag "latest")) .component) }}
{{- end }}
{{- $names_host := regexMatch "^([^/]*[.:][^/]*|localhost)/" $image.repository }}
{{- if not (or .root.Values.image.registry $names_host (eq .root.Values.image.pullPolicy "Never")) }}
{{- fail (printf "image.registry: must be the registry that holds your images (got nothing). Without one, nodes would pull %s from a public registry, where anybody may own that name. `scripts/images/build --registry REGISTRY --push` builds and pushes the images, and writes a file for --values that names them; or set image.registry=REGISTRY. For images that are on the nodes already, set image.pullPolicy=Never" $image.repository) }}
{{- end }}
{{- with .root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{- /* dict "field" "controller.fetchImage" "image" REFERENCE: returns the reference, which must have a digest or a tag other than latest. */ -}}
{{- define "windlass.reference" -}}
{{- if or (hasSuffix ":latest" .image) (not (regexMatch "(@sha256:[0-9a-f]{64}|:[A-Za-z0-9_][A-Za-z0-9._-]*)$" .image)) }}
{{- fail (printf "%s: must end with a digest or with a tag that is never moved (got %s)" .field .image) }}
{{- end }}
{{- .image }}
{{- end }}

{{- define "windlass.workerImage" -}}
{{- if .Values.controller.workerImage }}{{ include "windlass.reference" (dict "field" "controller.workerImage" "image" .Values.controller.workerImage) }}
{{- else }}{{ include "windlass.image" (dict "root" . "component" "worker") }}{{ end }}
{{- end }}

{{- /* OpenShift gives each namespace users of its own and refuses others. */ -}}
{{- define "windlass.workerUser" -}}
{{ if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}none{{ else }}{{ .Values.worker.runAsUser | default "none" }}{{ end }}
{{- end }}

{{- define "windlass.selector" -}}
app.kubernetes.io/name: windlass
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "windlass.labels" -}}
{{ include "windlass.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* No user: the images run as 65532, or as the user that the cluster chooses (OpenShift). */ -}}
{{- define "windlass.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "windlass.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* dict "root" . "component" "gateway" "values" .Values.gateway: node selector, tolerations, affinity, and replicas spread over
nodes and zones. */ -}}
{{- define "windlass.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- $selector := include "windlass.selector" . }}
topologySpreadConstraints:
{{- with .values.topologySpreadConstraints }}
{{- toYaml . | nindent 0 }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- $selector | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Labels of a pod: ours, and those of the values under other names. */ -}}
{{- define "windlass.podLabels" -}}
{{ include "windlass.labels" . }}
{{- $ours := include "windlass.labels" . | fromYaml }}
{{- range $name, $value := .values.podLabels }}
{{- if not (hasKey $ours $name) }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* dict "root" . "port" 9401 "values" .Values.controller: annotations of a pod, including those for a Prometheus without the operator. */ -}}
{{- define "windlass.podAnnotations" -}}
{{- if not .root.Values.monitoring.serviceMonitor.enabled }}
prometheus.io/scrape: "true"
prometheus.io/scheme: {{ include "windlass.scheme" .root }}
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- with .values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* A disruption budget: with several pods, one at a time may be evicted. dict "root" . "component" "gateway" "values" .Values.gateway */ -}}
{{- define "windlass.disruptionBudget" -}}
{{- $scaling := .values.autoscaling | default dict }}
{{- if gt (int (ternary $scaling.minReplicas .values.replicas ($scaling.enabled | default false))) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "windlass.name" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "windlass.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "windlass.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- /* TLS and the installation's token between controller, gateways and scrapers; docs/security.md explains who needs which. */ -}}
{{- define "windlass.scheme" -}}
{{ ternary "https" "http" .Values.security.tls.enabled }}
{{- end }}

{{- define "windlass.tlsSecret" -}}
{{ .Values.security.tls.existingSecret | default (printf "%s-tls" (include "windlass.name" .)) }}
{{- end }}

{{- define "windlass.tokenSecret" -}}
{{ .Values.security.token.existingSecret | default (printf "%s-token" (include "windlass.name" .)) }}
{{- end }}

{{- define "windlass.secretMounts" -}}
- {name: token, mountPath: /etc/windlass/token, readOnly: true}
{{- if .Values.security.tls.enabled }}
- {name: tls, mountPath: /etc/windlass/tls, readOnly: true}
{{- end }}
{{- end }}

{{- /* No checksum annotation is needed: the programs reload these files when they change. */ -}}
{{- define "windlass.secretVolumes" -}}
- name: token
  secret: {secretName: {{ include "windlass.tokenSecret" . }}, items: [{key: token, path: token}]}
{{- if .Values.security.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "windlass.tlsSecret" . }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}, {key: ca.crt, path: ca.crt}]}
{{- end }}
{{- end }}
