{{/* Template of a role's pod. Arguments: root, role, cluster of a role of one cluster, and only of collect shard (1/2) and
shardNumber (1). */}}
{{- define "rebalancer.pod" -}}
{{- $values := index .root.Values .role -}}
{{- $secretFiles := include "rebalancer.secretFiles" . | fromYaml -}}
{{- range $name, $own := .root.Values.clusters -}}
  {{- if or (not $.cluster) (eq $name $.cluster) -}}
    {{- range $setting, $file := include "rebalancer.clusterSecretFiles" (dict "role" $.role "files" $own.secretFiles) | fromYaml -}}
      {{- $_ := set $secretFiles (printf "%s/%s" $name $setting) $file -}}
    {{- end -}}
  {{- end -}}
{{- end }}
metadata:
  annotations:
    # New settings start new pods.
    checksum/settings: {{ include "rebalancer.settings" . | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "rebalancer.roleLabels" . | nindent 4 }}
    {{- with .shard }}
    rebalancer/shard: {{ replace "/" "-of-" . }}
    rebalancer/shard-number: {{ $.shardNumber | quote }}
    {{- end }}
    {{- with .root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "rebalancer.serviceAccountName" .root }}
  # No role asks Kubernetes for anything.
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: {{ .root.Values.podSecurity.runAsUser }}
    runAsGroup: {{ .root.Values.podSecurity.runAsGroup }}
    fsGroup: {{ .root.Values.podSecurity.fsGroup }}
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- include "rebalancer.affinity" . | nindent 2 }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .role }}
      image: {{ include "rebalancer.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        - {{ .role }}
        {{- with .cluster }}
        - --cluster
        - {{ . | quote }}
        {{- end }}
        {{- with .shard }}
        - --set
        - collect.shard={{ . }}
        {{- end }}
      # Spark, Java and Python write below the working directory and /tmp only.
      workingDir: /tmp
      env:
        - name: REBALANCER_CONFIG
          value: /etc/rebalancer/settings/rebalancer.yaml
        - name: HOME
          value: /tmp
        - name: PYTHONDONTWRITEBYTECODE
          value: "1"
        {{- with .root.Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .root.Values.storage.credentialsSecret }}
      envFrom:
        - secretRef:
            name: {{ . }}
      {{- end }}
      {{- if eq .role "serve" }}
      ports:
        - name: http
          containerPort: 9464
      startupProbe:
        httpGet: { path: /healthz, port: http }
        periodSeconds: 5
        failureThreshold: 24
      livenessProbe:
        httpGet: { path: /healthz, port: http }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: { path: /readyz, port: http }
        periodSeconds: 10
        timeoutSeconds: 5
      {{- end }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: settings
          mountPath: /etc/rebalancer/settings
          readOnly: true
        {{- if $secretFiles }}
        - name: secrets
          mountPath: /etc/rebalancer/secrets
          readOnly: true
        {{- end }}
        - name: temporary
          mountPath: /tmp
        {{- if include "rebalancer.usesVolume" . }}
        - name: data
          mountPath: /var/lib/rebalancer
          {{- if not (include "rebalancer.writesTables" .) }}
          readOnly: true
          {{- end }}
        {{- end }}
  volumes:
    - name: settings
      configMap:
        name: {{ include "rebalancer.fullname" .root }}
        items:
          - key: {{ .role }}{{ include "rebalancer.ofCluster" .cluster }}.yaml
            path: rebalancer.yaml
    {{- if $secretFiles }}
    - name: secrets
      projected:
        defaultMode: 0440
        sources:
          {{- range $setting, $file := $secretFiles }}
          - secret:
              name: {{ $file.secretName }}
              items:
                - key: {{ $file.key }}
                  path: {{ $setting }}
          {{- end }}
    {{- end }}
    - name: temporary
      emptyDir:
        sizeLimit: {{ $values.temporarySize }}
    {{- if include "rebalancer.usesVolume" . }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ include "rebalancer.claimName" .root }}
    {{- end }}
{{- end }}

{{/* With a volume of one node all pods that mount it share that node; else two controls don't. */}}
{{- define "rebalancer.affinity" -}}
{{- if and (eq .root.Values.storage.accessMode "ReadWriteOnce") (include "rebalancer.isFolder" .root.Values.settings.storage.tables) -}}
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - labelSelector:
          matchLabels:
            {{- include "rebalancer.selectorLabels" .root | nindent 12 }}
        topologyKey: kubernetes.io/hostname
{{- else if eq .role "control" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "rebalancer.roleLabels" . | fromYaml)) -}}
{{- if eq .root.Values.control.antiAffinity "required" -}}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      {{- toYaml (list $term) | nindent 6 }}
{{- else if eq .root.Values.control.antiAffinity "preferred" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      {{- toYaml (list (dict "weight" 100 "podAffinityTerm" $term)) | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}
