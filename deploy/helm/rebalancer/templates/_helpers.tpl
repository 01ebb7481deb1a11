{{/* Name of all objects of a release. */}}
{{- define "rebalancer.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $full .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- end }}

{{- define "rebalancer.serviceAccountName" -}}
{{- default (.Values.serviceAccount.create | ternary (include "rebalancer.fullname" .) "default") .Values.serviceAccount.name -}}
{{- end }}

{{- define "rebalancer.claimName" -}}
{{- default (include "rebalancer.fullname" .) .Values.storage.existingClaim -}}
{{- end }}

{{- define "rebalancer.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}{{ $image.repository }}@{{ $image.digest }}
{{- else -}}{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}{{- end -}}
{{- end }}

{{/* What a selector holds: never changed by an upgrade. */}}
{{- define "rebalancer.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rebalancer.labels" -}}
{{ include "rebalancer.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kafka-load-rebalancer
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Settings file of a role. Arguments: root, role. serve reads tables only, so it gets no login to Kafka. */}}
{{- define "rebalancer.settings" -}}
{{- $values := index .root.Values .role -}}
{{- $settings := mergeOverwrite (deepCopy .root.Values.settings) (deepCopy $values.settings) -}}
{{- if eq .role "serve" -}}
  {{- $full := include "rebalancer.fullname" .root -}}
  {{- $namespace := .root.Release.Namespace -}}
  {{- $names := list (printf "%s-serve" $full) (printf "%s-serve.%s" $full $namespace)
        (printf "%s-serve.%s.svc" $full $namespace) (printf "%s-serve.%s.svc.cluster.local" $full $namespace) -}}
  {{- $own := default dict $settings.serve -}}
  {{- $hosts := concat $names $values.allowedHosts (list $values.ingress.host | compact) | uniq -}}
  {{- $serve := dict "host" "0.0.0.0" "port" 9464 "allowed_hosts" $hosts -}}
  {{- $_ := set $settings "serve" (mergeOverwrite (deepCopy $own) $serve) -}}
  {{- $_ := set $settings "kafka" (pick (default dict $settings.kafka) "cluster_name" "cluster_id") -}}
  {{- $_ := set $settings "collect" (pick (default dict $settings.collect) "sample_interval_ms") -}}
{{- end -}}
{{- if ne .role "serve" -}}
  {{/* serve alone has their secrets, without which they may not be valid. */}}
  {{- $settings = omit $settings "serve" "notify" -}}
{{- end -}}
{{- range $setting, $_ := include "rebalancer.secretFiles" . | fromYaml -}}
  {{- $section := $settings -}}
  {{- range splitList "." $setting | initial -}}
    {{- $inner := default dict (get $section .) -}}
    {{- $_ := set $section . $inner -}}
    {{- $section = $inner -}}
  {{- end -}}
  {{- $_ := set $section (splitList "." $setting | last) (printf "/etc/rebalancer/secrets/%s" $setting) -}}
{{- end -}}
{{ toYaml $settings }}
{{- end }}

{{/* Files of Secrets that a role gets: `kafka.` for all but serve, `collect.` for the collectors, `serve.` and `notify.`
for serve. */}}
{{- define "rebalancer.secretFiles" -}}
{{- $files := dict -}}
{{- $values := index .root.Values .role -}}
{{- range $setting, $file := mergeOverwrite (deepCopy .root.Values.secretFiles) (deepCopy $values.secretFiles) -}}
  {{- $section := splitList "." $setting | first -}}
  {{- if or (eq $section $.role) (ternary (eq $section "notify") (eq $section "kafka") (eq $.role "serve")) -}}
    {{- $_ := set $files $setting $file -}}
  {{- end -}}
{{- end -}}
{{ toYaml $files }}
{{- end }}

{{/* Whether a role uses an object store: for its tables or, as the pipeline, for its checkpoints. Arguments: root, role. */}}
{{- define "rebalancer.usesStore" -}}
{{- $storage := (include "rebalancer.settings" . | fromYaml).storage -}}
{{- if or (contains "://" $storage.tables) (and (eq .role "pipeline") (contains "://" $storage.checkpoints)) -}}true{{- end -}}
{{- end }}

{{/* Whether a role mounts the volume: for its tables or, as the pipeline, for its checkpoints. Arguments: root, role. */}}
{{- define "rebalancer.usesVolume" -}}
{{- $storage := (include "rebalancer.settings" . | fromYaml).storage -}}
{{- if or (not (contains "://" $storage.tables)) (and (eq .role "pipeline") (not (contains "://" $storage.checkpoints))) -}}true{{- end -}}
{{- end }}

{{/* Whether any role mounts the volume. */}}
{{- define "rebalancer.hasVolume" -}}
{{- range $role := list "collect" "control" "pipeline" "serve" -}}
  {{- include "rebalancer.usesVolume" (dict "root" $ "role" $role) -}}
{{- end -}}
{{- end }}

{{/* Whether a role writes tables, or nothing. serve does where it sends notifications (table notification) and where people
or programs may act through it (audit, execution). Arguments: root, role. */}}
{{- define "rebalancer.writesTables" -}}
{{- $settings := include "rebalancer.settings" . | fromYaml -}}
{{- $notify := default dict $settings.notify -}}
{{- $serve := default dict $settings.serve -}}
{{- $writes := has .role (list "pipeline" "control") -}}
{{- if eq .role "serve" -}}
  {{- $writes = or $notify.webhooks $serve.oidc_issuer $serve.tokens_file $serve.users_file -}}
  {{- range .root.Values.extraEnv -}}
    {{- if regexMatch "^REBALANCER_(NOTIFY__|SERVE__(OIDC|TOKENS|USERS)_)" .name -}}{{- $writes = true -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- if $writes -}}true{{- end -}}
{{- end }}

{{/* Labels of a role's pods. Arguments: root, role. */}}
{{- define "rebalancer.roleLabels" -}}
{{ include "rebalancer.selectorLabels" .root }}
app.kubernetes.io/component: {{ .role }}
{{- end }}
