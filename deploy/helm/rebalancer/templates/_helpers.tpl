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

{{/* Names of the clusters whose roles run, as JSON: [""] where `clusters` names none, [] where all are paused. */}}
{{- define "rebalancer.clusterNames" -}}
{{- $names := list -}}
{{- range $name := keys .Values.clusters | sortAlpha -}}
  {{- if not ((index $.Values.clusters $name).settings).paused -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{ toJson (ternary $names (list "") (gt (len .Values.clusters) 0)) }}
{{- end }}

{{/* Adds `-NAME` to names of objects of one cluster. Argument: name of the cluster, or nothing. */}}
{{- define "rebalancer.ofCluster" -}}
{{- with . -}}-{{ . }}{{- end -}}
{{- end }}

{{/* Sets each setting that names a file to its path in the pod. Arguments: settings, files, folder. Gives no text. */}}
{{- define "rebalancer.setFiles" -}}
{{- range $setting, $_ := .files -}}
  {{- $section := $.settings -}}
  {{- range splitList "." $setting | initial -}}
    {{- $inner := default dict (get $section .) -}}
    {{- $_ := set $section . $inner -}}
    {{- $section = $inner -}}
  {{- end -}}
  {{- $_ := set $section (splitList "." $setting | last) (printf "%s/%s" $.folder $setting) -}}
{{- end -}}
{{- end }}

{{/* Sections of single clusters in the settings file of a role. Arguments: root, role, cluster (all, if it is empty). */}}
{{- define "rebalancer.clusters" -}}
{{- $clusters := dict -}}
{{- range $name, $values := .root.Values.clusters -}}
{{- if or (not $.cluster) (eq $name $.cluster) -}}
  {{- $own := deepCopy (default dict $values.settings) -}}
  {{/* What a role does not read starts no new pods of it: those of the pipeline work for all clusters. */}}
  {{- if eq $.role "pipeline" -}}{{- $own = pick $own "kafka" "topics" "storage" "paused" -}}{{- end -}}
  {{- if eq $.role "collect" -}}{{- $own = pick $own "kafka" "topics" "storage" "collect" -}}{{- end -}}
  {{- if eq $.role "serve" -}}
    {{- $_ := set $own "kafka" (pick (default dict $own.kafka) "bootstrap_servers" "cluster_id") -}}
    {{- $_ := set $own "collect" (pick (default dict $own.collect) "sample_interval_ms") -}}
  {{- end -}}
  {{- $files := include "rebalancer.clusterSecretFiles" (dict "role" $.role "files" $values.secretFiles) | fromYaml -}}
  {{- include "rebalancer.setFiles" (dict "settings" $own "files" $files "folder" (printf "/etc/rebalancer/secrets/%s" $name)) -}}
  {{- $_ := set $clusters $name $own -}}
{{- end -}}
{{- end -}}
{{ toYaml $clusters }}
{{- end }}

{{/* Files of one cluster's Secrets that a role gets. Arguments: role, files. */}}
{{- define "rebalancer.clusterSecretFiles" -}}
{{- $files := dict -}}
{{- range $setting, $file := .files -}}
  {{- $section := splitList "." $setting | first -}}
  {{- $isControls := and (eq $.role "control") (eq $section "collect") -}}
  {{- if or $isControls (eq $section $.role) (and (eq $section "kafka") (ne $.role "serve")) -}}
    {{- $_ := set $files $setting $file -}}
  {{- end -}}
{{- end -}}
{{ toYaml $files }}
{{- end }}

{{/* Settings file of a role. Arguments: root, role, and of a role of one cluster its name as cluster. serve reads tables
only, so it gets no login to Kafka. */}}
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
  {{- $keys := ternary (list) (list "cluster_name" "cluster_id") (gt (len .root.Values.clusters) 0) -}}
  {{- $kafka := dict -}}
  {{- range $keys -}}{{- if hasKey (default dict $settings.kafka) . -}}{{- $_ := set $kafka . (get $settings.kafka .) -}}{{- end -}}{{- end -}}
  {{- $_ := set $settings "kafka" $kafka -}}
  {{- $_ := set $settings "collect" (pick (default dict $settings.collect) "sample_interval_ms") -}}
{{- end -}}
{{- if ne .role "serve" -}}
  {{/* serve alone has their secrets, without which they may not be valid. */}}
  {{- $settings = omit $settings "serve" "notify" -}}
{{- end -}}
{{- $files := include "rebalancer.secretFiles" . | fromYaml -}}
{{- include "rebalancer.setFiles" (dict "settings" $settings "files" $files "folder" "/etc/rebalancer/secrets") -}}
{{- with include "rebalancer.clusters" . | fromYaml -}}
  {{- $_ := set $settings "clusters" . -}}
{{- end -}}
{{ toYaml $settings }}
{{- end }}

{{/* Files of Secrets that a role gets: `kafka.` for all but serve, `collect.` for the collectors and for control, in whose
pod `rebalancer check` reads what collectors read, `serve.` and `notify.` for serve. */}}
{{- define "rebalancer.secretFiles" -}}
{{- $files := dict -}}
{{- $given := deepCopy .root.Values.secretFiles -}}
{{- if eq .role "control" -}}
  {{- range $setting, $file := .root.Values.collect.secretFiles -}}
    {{- if hasPrefix "collect." $setting -}}{{- $_ := set $given $setting $file -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- range $setting, $file := mergeOverwrite $given (deepCopy (index .root.Values .role).secretFiles) -}}
  {{- $section := splitList "." $setting | first -}}
  {{- if and (eq $.role "control") (eq $section "collect") -}}{{- $_ := set $files $setting $file -}}{{- end -}}
  {{- if or (eq $section $.role) (ternary (eq $section "notify") (eq $section "kafka") (eq $.role "serve")) -}}
    {{- $_ := set $files $setting $file -}}
  {{- end -}}
{{- end -}}
{{ toYaml $files }}
{{- end }}

{{/* Places that a role uses, as JSON: of its tables and, for the pipeline, of its checkpoints. Arguments as for settings. */}}
{{- define "rebalancer.places" -}}
{{- $settings := include "rebalancer.settings" . | fromYaml -}}
{{- $storages := list $settings.storage -}}
{{- range $settings.clusters -}}{{- with .storage -}}{{- $storages = append $storages . -}}{{- end -}}{{- end -}}
{{- $places := list -}}
{{- range $storages -}}
  {{- $places = append $places .tables -}}
  {{- if eq $.role "pipeline" -}}{{- $places = append $places .checkpoints -}}{{- end -}}
{{- end -}}
{{ compact $places | toJson }}
{{- end }}

{{/* Whether a place is a folder, or nothing: a path, or a URI of scheme file. Fails for a folder that is not on the volume:
a pod can't write there, or loses it with its container. Argument: the place. */}}
{{- define "rebalancer.isFolder" -}}
{{- if or (not (contains "://" .)) (regexMatch "(?i)^file://" .) -}}
  {{- if not (regexMatch "^((?i:file)://(localhost)?)?/var/lib/rebalancer(/|$)" .) -}}
    {{- fail (printf "storage: %s is not on the volume, which is mounted at /var/lib/rebalancer" .) -}}
  {{- end -}}
true
{{- end -}}
{{- end }}

{{/* Whether a role uses an object store for any of its places. Arguments as for settings. */}}
{{- define "rebalancer.usesStore" -}}
{{- $found := "" -}}
{{- range include "rebalancer.places" . | fromJsonArray -}}{{- if not (include "rebalancer.isFolder" .) -}}{{- $found = "true" -}}{{- end -}}{{- end -}}
{{ $found }}
{{- end }}

{{/* Whether a role mounts the volume for any of its places. Arguments as for settings. */}}
{{- define "rebalancer.usesVolume" -}}
{{- $found := "" -}}
{{- range include "rebalancer.places" . | fromJsonArray -}}{{- if include "rebalancer.isFolder" . -}}{{- $found = "true" -}}{{- end -}}{{- end -}}
{{ $found }}
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

{{/* Labels of a role's pods. Arguments: root, role, and of a role of one cluster its name as cluster. */}}
{{- define "rebalancer.roleLabels" -}}
{{ include "rebalancer.selectorLabels" .root }}
app.kubernetes.io/component: {{ .role }}
{{- with .cluster }}
rebalancer/cluster: {{ . | quote }}
{{- end }}
{{- end }}
