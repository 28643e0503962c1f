{{/* Rules of a NetworkPolicy. */}}

{{/* Egress to peers (empty: everywhere) at ports. Takes (list peers ports). */}}
{{- define "modelgateway.egress" -}}
- ports:
    {{- range last . }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with first . }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "modelgateway.egress.dns" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}

{{/* Ingress at one named port from peers that are not empty. Takes (list peers port). */}}
{{- define "modelgateway.ingress" -}}
- ports:
    - {port: {{ last . }}, protocol: TCP}
  from:
    {{- toYaml (first .) | nindent 4 }}
{{- end }}
