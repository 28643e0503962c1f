{{/*
Parts of the pods of both planes. Helpers take (list $ "component"); the values of the
component are under its name.
*/}}

{{/* Pods have only the labels of their selectors. Release labels would restart every pod with each version of the chart. */}}
{{- define "modelgateway.podMetadata" -}}
{{- $root := first . }}
{{- $values := index $root.Values (last .) -}}
labels:
  {{- include "modelgateway.selectorLabels" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ include (printf "modelgateway.config.%s" (last .)) $root | sha256sum }}
  {{- with $values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Identity and placement. */}}
{{- define "modelgateway.podSpec" -}}
{{- $root := first . }}
{{- $values := index $root.Values (last .) -}}
serviceAccountName: {{ include "modelgateway.componentName" . }}
{{ include "modelgateway.podBase" $root }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    labelSelector:
      matchLabels:
        {{- include "modelgateway.selectorLabels" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Parts of every pod, including the migration's. No program uses the Kubernetes API, so no token is mounted. Service links are disabled because they add environment variables. */}}
{{- define "modelgateway.podBase" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "modelgateway.containerBase" -}}
{{- $root := first . -}}
image: {{ include "modelgateway.image" . }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml $root.Values.containerSecurityContext | nindent 2 }}
{{- end }}

{{/* Probes of a container, on its ops port, and its preStop hook. */}}
{{- define "modelgateway.lifecycle" -}}
startupProbe:
  httpGet: {path: /livez, port: ops}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ div (add (int .startupSeconds) 1) 2 }}
livenessProbe:
  httpGet: {path: /livez, port: ops}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: ops}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- if gt (int .preStopSeconds) 0 }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ int .preStopSeconds }}
{{- end }}
{{- end }}

{{/* Volume of secrets, each a file of mode 0440 for the group of the pod. Takes the sources. */}}
{{- define "modelgateway.secretsVolume" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- . | trim | nindent 6 }}
{{- end }}
