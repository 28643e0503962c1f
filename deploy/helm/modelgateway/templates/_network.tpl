{{/* Rules of a NetworkPolicy. */}}

{{/* Fields of a Service. Takes the service of a plane. */}}
{{- define "modelgateway.ipFamilies" -}}
{{- with .ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Egress to the collector of traces, if there is one. */}}
{{- define "modelgateway.egress.tracing" -}}
{{- with .Values.tracing.endpoint }}
{{- include "modelgateway.egress" (list $.Values.networkPolicy.tracingTo (list (include "modelgateway.port" .))) }}
{{- end }}
{{- end }}

{{/* The port of a URL. */}}
{{- define "modelgateway.port" -}}
{{- $url := urlParse . }}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) }}
{{- end }}

{{/* Egress to the monitoring ports of NATS, from which gwctl doctor reads whether the servers sync. */}}
{{- define "modelgateway.egress.monitor" -}}
{{- with .Values.nats.monitorURL }}
{{- $ports := list }}
{{- range splitList "," . }}
{{- $ports = append $ports (include "modelgateway.port" (trim .) | int) }}
{{- end }}
{{- include "modelgateway.egress" (list $.Values.networkPolicy.natsTo (uniq $ports)) }}
{{- end }}
{{- end }}

{{/* Fails if the policies forbid the port of the OpenID Connect provider, whose keys the control plane fetches. */}}
{{- define "modelgateway.requireIssuerPort" -}}
{{- with .Values.controlplane.oidc }}
{{- if and .issuer (or (not .jwksSecret.name) $.Values.controlplane.console.oidc.clientID) }}
{{- $port := include "modelgateway.port" .issuer | int }}
{{- $allowed := list }}
{{- range $.Values.networkPolicy.controlplanePorts }}
{{- $allowed = append $allowed (int .) }}
{{- end }}
{{- if not (has $port $allowed) }}
{{- fail (printf "controlplane.oidc.issuer has the port %d, which networkPolicy.controlplanePorts lacks" $port) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

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

{{/* Fails if the policies forbid a port of nats.url. */}}
{{- define "modelgateway.requireNATSPorts" -}}
{{- range splitList "," .Values.nats.url }}
{{- $port := regexFind ":[0-9]+$" . | default ":4222" | trimPrefix ":" | int }}
{{- $allowed := list }}
{{- range $.Values.networkPolicy.natsPorts }}
{{- $allowed = append $allowed (int .) }}
{{- end }}
{{- if not (has $port $allowed) }}
{{- fail (printf "nats.url has the port %d, which networkPolicy.natsPorts lacks" $port) }}
{{- end }}
{{- end }}
{{- end }}

{{/*
An Ingress and an HTTPRoute to a plane. Takes a dict: root, component, name, path, values (with ingress and httpRoute). The
gateway ends a call after 600 s; the entrance waits longer, so that clients get the gateway's answer.
*/}}
{{- define "modelgateway.entrance" -}}
{{- $root := .root }}
{{- $plane := index .root.Values .component }}
{{- $labels := include "modelgateway.labels" (list .root .component) }}
{{- $service := include "modelgateway.componentName" (list .root .component) }}
{{- $entrance := . }}
{{- with .values.ingress }}
{{- if .enabled }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ $entrance.name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
  {{- with merge (dict) .annotations (include "modelgateway.entrance.annotations" (list .controller $plane) | fromYaml) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- with .tls }}
  tls:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    {{- range .hosts }}
    - host: {{ . | quote }}
      http:
        paths:
          - path: {{ $entrance.path }}
            pathType: Prefix
            backend:
              service:
                name: {{ $service }}
                port:
                  number: {{ $plane.service.port }}
    {{- end }}
{{- end }}
{{- end }}
{{- with .values.httpRoute }}
{{- if .enabled }}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {{ $entrance.name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  parentRefs:
    {{- toYaml .parentRefs | nindent 4 }}
  {{- with .hostnames }}
  hostnames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - matches:
        - path: {type: PathPrefix, value: {{ $entrance.path }}}
      timeouts: {request: 660s, backendRequest: 660s}
      backendRefs:
        - name: {{ $service }}
          port: {{ $plane.service.port }}
{{- end }}
{{- end }}
{{- end }}

{{/* Annotations of an Ingress controller: 660 s, no buffering, bodies of 70 MiB. Takes (list controller plane). */}}
{{- define "modelgateway.entrance.annotations" -}}
{{- $tls := not (empty (last .).tls.secretName) -}}
{{- if eq (first .) "nginx" -}}
nginx.ingress.kubernetes.io/proxy-read-timeout: "660"
nginx.ingress.kubernetes.io/proxy-send-timeout: "660"
nginx.ingress.kubernetes.io/proxy-buffering: "off"
nginx.ingress.kubernetes.io/proxy-request-buffering: "off"
nginx.ingress.kubernetes.io/proxy-body-size: 70m
nginx.ingress.kubernetes.io/backend-protocol: {{ $tls | ternary "HTTPS" "HTTP" }}
{{- else if eq (first .) "alb" -}}
alb.ingress.kubernetes.io/target-type: ip
alb.ingress.kubernetes.io/load-balancer-attributes: idle_timeout.timeout_seconds=660
alb.ingress.kubernetes.io/backend-protocol: {{ $tls | ternary "HTTPS" "HTTP" }}
alb.ingress.kubernetes.io/healthcheck-protocol: HTTP
alb.ingress.kubernetes.io/healthcheck-port: {{ ternary "9091" "9090" (hasKey (last .) "masterKeyID") | quote }}
alb.ingress.kubernetes.io/healthcheck-path: /readyz
{{- end -}}
{{- end }}
