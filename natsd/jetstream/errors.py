"""Errors of the JetStream API: each code and text in one table.

- A row is `NAME = err_code, HTTP-like code, description`; the names are nats-server's constants.
- `{placeholders}` of a description are filled when the error is raised. On nats-server a name that
  ends in `F` has free text; a few other names have placeholders too.
- Codes and texts are the contract with client libraries; a code is never reused.

Source: nats-server's server/errors.json; the 222 errors of version 2.14.
"""

from enum import Enum, unique
from typing import Final


@unique
class ErrorId(Enum):
    """All errors of the JetStream API: (err_code, code, description)."""

    JSAccountResourcesExceededErr = 10002, 400, "resource limits exceeded for account"
    JSBadRequestErr = 10003, 400, "bad request"
    JSClusterIncompleteErr = 10004, 503, "incomplete results"
    JSClusterNoPeersErrF = 10005, 400, "{err}"
    JSClusterNotActiveErr = 10006, 500, "JetStream not in clustered mode"
    JSClusterNotAssignedErr = 10007, 500, "JetStream cluster not assigned to this server"
    JSClusterNotAvailErr = 10008, 503, "JetStream system temporarily unavailable"
    JSClusterNotLeaderErr = 10009, 500, "JetStream cluster can not handle request"
    JSClusterRequiredErr = 10010, 503, "JetStream clustering support required"
    JSClusterTagsErr = 10011, 400, "tags placement not supported for operation"
    JSConsumerCreateErrF = 10012, 500, "{err}"
    JSConsumerNameExistErr = 10013, 400, "consumer name already in use"
    JSConsumerNotFoundErr = 10014, 404, "consumer not found"
    JSSnapshotDeliverSubjectInvalidErr = 10015, 400, "deliver subject not valid"
    JSConsumerDurableNameNotInSubjectErr = (
        10016,
        400,
        "consumer expected to be durable but no durable name set in subject",
    )
    JSConsumerDurableNameNotMatchSubjectErr = (
        10017,
        400,
        "consumer name in subject does not match durable name in request",
    )
    JSConsumerDurableNameNotSetErr = (
        10018,
        400,
        "consumer expected to be durable but a durable name was not set",
    )
    JSConsumerEphemeralWithDurableInSubjectErr = (
        10019,
        400,
        "consumer expected to be ephemeral but detected a durable name set in subject",
    )
    JSConsumerEphemeralWithDurableNameErr = (
        10020,
        400,
        "consumer expected to be ephemeral but a durable name was set in request",
    )
    JSStreamExternalApiOverlapErrF = (
        10021,
        400,
        "stream external api prefix {prefix} must not overlap with {subject}",
    )
    JSStreamExternalDelPrefixOverlapsErrF = (
        10022,
        400,
        "stream external delivery prefix {prefix} overlaps with stream subject {subject}",
    )
    JSInsufficientResourcesErr = 10023, 503, "insufficient resources"
    JSStreamInvalidExternalDeliverySubjErrF = (
        10024,
        400,
        "stream external delivery prefix {prefix} must not contain wildcards",
    )
    JSInvalidJSONErr = 10025, 400, "invalid JSON: {err}"
    JSMaximumConsumersLimitErr = 10026, 400, "maximum consumers limit reached"
    JSMaximumStreamsLimitErr = 10027, 400, "maximum number of streams reached"
    JSMemoryResourcesExceededErr = 10028, 500, "insufficient memory resources available"
    JSMirrorConsumerSetupFailedErrF = 10029, 500, "{err}"
    JSMirrorMaxMessageSizeTooBigErr = (
        10030,
        400,
        "stream mirror must have max message size >= source",
    )
    JSMirrorWithSourcesErr = 10031, 400, "stream mirrors can not also contain other sources"
    JSMirrorWithStartSeqAndTimeErr = (
        10032,
        400,
        "stream mirrors can not have both start seq and start time configured",
    )
    JSMirrorWithSubjectFiltersErr = 10033, 400, "stream mirrors can not contain filtered subjects"
    JSMirrorWithSubjectsErr = 10034, 400, "stream mirrors can not contain subjects"
    JSNoAccountErr = 10035, 503, "account not found"
    JSClusterUnSupportFeatureErr = 10036, 503, "not currently supported in clustered mode"
    JSNoMessageFoundErr = 10037, 404, "no message found"
    JSNotEmptyRequestErr = 10038, 400, "expected an empty request payload"
    JSNotEnabledForAccountErr = 10039, 503, "JetStream not enabled for account"
    JSClusterPeerNotMemberErr = 10040, 400, "peer not a member"
    JSRaftGeneralErrF = 10041, 500, "{err}"
    JSRestoreSubscribeFailedErrF = (
        10042,
        500,
        "JetStream unable to subscribe to restore snapshot {subject}: {err}",
    )
    JSSequenceNotFoundErrF = 10043, 400, "sequence {seq} not found"
    JSClusterServerNotMemberErr = 10044, 400, "server is not a member of the cluster"
    JSSourceConsumerSetupFailedErrF = 10045, 500, "{err}"
    JSSourceMaxMessageSizeTooBigErr = (
        10046,
        400,
        "stream source must have max message size >= target",
    )
    JSStorageResourcesExceededErr = 10047, 500, "insufficient storage resources available"
    JSStreamAssignmentErrF = 10048, 500, "{err}"
    JSStreamCreateErrF = 10049, 500, "{err}"
    JSStreamDeleteErrF = 10050, 500, "{err}"
    JSStreamGeneralErrorF = 10051, 500, "{err}"
    JSStreamInvalidConfigF = 10052, 500, "{err}"
    JSStreamLimitsErrF = 10053, 500, "{err}"
    JSStreamMessageExceedsMaximumErr = 10054, 400, "message size exceeds maximum allowed"
    JSStreamMirrorNotUpdatableErr = 10055, 400, "stream mirror configuration can not be updated"
    JSStreamMismatchErr = 10056, 400, "stream name in subject does not match request"
    JSStreamMsgDeleteFailedF = 10057, 500, "{err}"
    JSStreamNameExistErr = 10058, 400, "stream name already in use with a different configuration"
    JSStreamNotFoundErr = 10059, 404, "stream not found"
    JSStreamNotMatchErr = 10060, 400, "expected stream does not match"
    JSStreamReplicasNotUpdatableErr = 10061, 400, "Replicas configuration can not be updated"
    JSStreamRestoreErrF = 10062, 500, "restore failed: {err}"
    JSStreamSequenceNotMatchErr = 10063, 503, "expected stream sequence does not match"
    JSStreamSnapshotErrF = 10064, 500, "snapshot failed: {err}"
    JSStreamSubjectOverlapErr = 10065, 400, "subjects overlap with an existing stream"
    JSStreamTemplateCreateErrF = 10066, 500, "{err}"
    JSStreamTemplateDeleteErrF = 10067, 500, "{err}"
    JSStreamTemplateNotFoundErr = 10068, 404, "template not found"
    JSStreamUpdateErrF = 10069, 500, "{err}"
    JSStreamWrongLastMsgIDErrF = 10070, 400, "wrong last msg ID: {id}"
    JSStreamWrongLastSequenceErrF = 10071, 400, "wrong last sequence: {seq}"
    JSTempStorageFailedErr = 10072, 500, "JetStream unable to open temp storage for restore"
    JSTemplateNameNotMatchSubjectErr = 10073, 400, "template name in subject does not match request"
    JSStreamReplicasNotSupportedErr = 10074, 500, "replicas > 1 not supported in non-clustered mode"
    JSPeerRemapErr = 10075, 503, "peer remap failed"
    JSNotEnabledErr = 10076, 503, "JetStream not enabled"
    JSStreamStoreFailedF = 10077, 503, "{err}"
    JSConsumerConfigRequiredErr = 10078, 400, "consumer config required"
    JSConsumerDeliverToWildcardsErr = 10079, 400, "consumer deliver subject has wildcards"
    JSConsumerPushMaxWaitingErr = 10080, 400, "consumer in push mode can not set max waiting"
    JSConsumerDeliverCycleErr = 10081, 400, "consumer deliver subject forms a cycle"
    JSConsumerMaxPendingAckPolicyRequiredErr = (
        10082,
        400,
        "consumer requires ack policy for max ack pending",
    )
    JSConsumerSmallHeartbeatErr = 10083, 400, "consumer idle heartbeat needs to be >= 100ms"
    JSConsumerPullRequiresAckErr = (
        10084,
        400,
        "consumer in pull mode requires explicit ack policy on workqueue stream",
    )
    JSConsumerPullNotDurableErr = 10085, 400, "consumer in pull mode requires a durable name"
    JSConsumerPullWithRateLimitErr = 10086, 400, "consumer in pull mode can not have rate limit set"
    JSConsumerMaxWaitingNegativeErr = 10087, 400, "consumer max waiting needs to be positive"
    JSConsumerHBRequiresPushErr = (
        10088,
        400,
        "consumer idle heartbeat requires a push based consumer",
    )
    JSConsumerFCRequiresPushErr = 10089, 400, "consumer flow control requires a push based consumer"
    JSConsumerDirectRequiresPushErr = 10090, 400, "consumer direct requires a push based consumer"
    JSConsumerDirectRequiresEphemeralErr = (
        10091,
        400,
        "consumer direct requires an ephemeral consumer",
    )
    JSConsumerOnMappedErr = 10092, 400, "consumer direct on a mapped consumer"
    JSConsumerFilterNotSubsetErr = (
        10093,
        400,
        "consumer filter subject is not a valid subset of the interest subjects",
    )
    JSConsumerInvalidPolicyErrF = 10094, 400, "{err}"
    JSConsumerInvalidSamplingErrF = (
        10095,
        400,
        "failed to parse consumer sampling configuration: {err}",
    )
    JSStreamInvalidErr = 10096, 500, "stream not valid"
    JSStreamHeaderExceedsMaximumErr = 10097, 400, "header size exceeds maximum allowed of 64k"
    JSConsumerWQRequiresExplicitAckErr = 10098, 400, "workqueue stream requires explicit ack"
    JSConsumerWQMultipleUnfilteredErr = (
        10099,
        400,
        "multiple non-filtered consumers not allowed on workqueue stream",
    )
    JSConsumerWQConsumerNotUniqueErr = (
        10100,
        400,
        "filtered consumer not unique on workqueue stream",
    )
    JSConsumerWQConsumerNotDeliverAllErr = (
        10101,
        400,
        "consumer must be deliver all on workqueue stream",
    )
    JSConsumerNameTooLongErrF = 10102, 400, "consumer name is too long, maximum allowed is {max}"
    JSConsumerBadDurableNameErr = 10103, 400, "durable name can not contain '.', '*', '>'"
    JSConsumerStoreFailedErrF = 10104, 500, "error creating store for consumer: {err}"
    JSConsumerExistingActiveErr = 10105, 400, "consumer already exists and is still active"
    JSConsumerReplacementWithDifferentNameErr = (
        10106,
        400,
        "consumer replacement durable config not the same",
    )
    JSConsumerDescriptionTooLongErrF = (
        10107,
        400,
        "consumer description is too long, maximum allowed is {max}",
    )
    JSConsumerWithFlowControlNeedsHeartbeats = (
        10108,
        400,
        "consumer with flow control also needs heartbeats",
    )
    JSStreamSealedErr = 10109, 400, "invalid operation on sealed stream"
    JSStreamPurgeFailedF = 10110, 500, "{err}"
    JSStreamRollupFailedF = 10111, 500, "{err}"
    JSConsumerInvalidDeliverSubject = 10112, 400, "invalid push consumer deliver subject"
    JSStreamMaxBytesRequired = 10113, 400, "account requires a stream config to have max bytes set"
    JSConsumerMaxRequestBatchNegativeErr = 10114, 400, "consumer max request batch needs to be > 0"
    JSConsumerMaxRequestExpiresTooSmall = (
        10115,
        400,
        "consumer max request expires needs to be >= 1ms",
    )
    JSConsumerMaxDeliverBackoffErr = (
        10116,
        400,
        "max deliver is required to be > length of backoff values",
    )
    JSStreamInfoMaxSubjectsErr = 10117, 500, "subject details would exceed maximum allowed"
    JSStreamOfflineErr = 10118, 500, "stream is offline"
    JSConsumerOfflineErr = 10119, 500, "consumer is offline"
    JSNoLimitsErr = 10120, 400, "no JetStream default or applicable tiered limit present"
    JSConsumerMaxPendingAckExcessErrF = (
        10121,
        400,
        "consumer max ack pending exceeds system limit of {limit}",
    )
    JSStreamMaxStreamBytesExceeded = (
        10122,
        400,
        "stream max bytes exceeds account limit max stream bytes",
    )
    JSStreamMoveAndScaleErr = 10123, 400, "can not move and scale a stream in a single update"
    JSStreamMoveInProgressErr = 10124, 400, "stream move already in progress"
    JSConsumerMaxRequestBatchExceededF = (
        10125,
        400,
        "consumer max request batch exceeds server limit of {limit}",
    )
    JSConsumerReplicasExceedsStream = (
        10126,
        400,
        "consumer config replica count exceeds parent stream",
    )
    JSConsumerNameContainsPathSeparatorsErr = (
        10127,
        400,
        "Consumer name can not contain path separators",
    )
    JSStreamNameContainsPathSeparatorsErr = (
        10128,
        400,
        "Stream name can not contain path separators",
    )
    JSStreamReconfigureNotInProgressErr = 10129, 400, "stream reconfiguration not in progress"
    JSStreamNameExistRestoreFailedErr = 10130, 400, "stream name already in use, cannot restore"
    JSConsumerCreateFilterSubjectMismatchErr = (
        10131,
        400,
        "Consumer create request did not match filtered subject from create subject",
    )
    JSConsumerCreateDurableAndNameMismatch = (
        10132,
        400,
        "Consumer Durable and Name have to be equal if both are provided",
    )
    JSReplicasCountCannotBeNegative = 10133, 400, "replicas count cannot be negative"
    JSConsumerReplicasShouldMatchStream = (
        10134,
        400,
        "consumer config replicas must match interest retention stream's replicas",
    )
    JSConsumerMetadataLengthErrF = 10135, 400, "consumer metadata exceeds maximum size of {limit}"
    JSConsumerDuplicateFilterSubjects = (
        10136,
        400,
        "consumer cannot have both FilterSubject and FilterSubjects specified",
    )
    JSConsumerMultipleFiltersNotAllowed = (
        10137,
        400,
        "consumer with multiple subject filters cannot use subject based API",
    )
    JSConsumerOverlappingSubjectFilters = 10138, 400, "consumer subject filters cannot overlap"
    JSConsumerEmptyFilter = 10139, 400, "consumer filter in FilterSubjects cannot be empty"
    JSSourceDuplicateDetected = 10140, 400, "duplicate source configuration detected"
    JSSourceInvalidStreamName = 10141, 400, "sourced stream name is invalid"
    JSMirrorInvalidStreamName = 10142, 400, "mirrored stream name is invalid"
    JSMirrorWithFirstSeqErr = 10143, 400, "stream mirrors can not have first sequence configured"
    JSSourceMultipleFiltersNotAllowed = (
        10144,
        400,
        "source with multiple subject transforms cannot also have a single subject filter",
    )
    JSSourceInvalidSubjectFilter = 10145, 400, "source transform source: {err}"
    JSSourceInvalidTransformDestination = 10146, 400, "source transform: {err}"
    JSSourceOverlappingSubjectFilters = 10147, 400, "source filters can not overlap"
    JSConsumerAlreadyExists = 10148, 400, "consumer already exists"
    JSConsumerDoesNotExist = 10149, 400, "consumer does not exist"
    JSMirrorMultipleFiltersNotAllowed = (
        10150,
        400,
        "mirror with multiple subject transforms cannot also have a single subject filter",
    )
    JSMirrorInvalidSubjectFilter = 10151, 400, "mirror transform source: {err}"
    JSMirrorOverlappingSubjectFilters = 10152, 400, "mirror subject filters can not overlap"
    JSConsumerInactiveThresholdExcess = (
        10153,
        400,
        "consumer inactive threshold exceeds system limit of {limit}",
    )
    JSMirrorInvalidTransformDestination = 10154, 400, "mirror transform: {err}"
    JSStreamTransformInvalidSource = 10155, 400, "stream transform source: {err}"
    JSStreamTransformInvalidDestination = 10156, 400, "stream transform: {err}"
    JSPedanticErrF = 10157, 400, "pedantic mode: {err}"
    JSStreamDuplicateMessageConflict = 10158, 409, "duplicate message id is in process"
    JSConsumerPriorityPolicyWithoutGroup = (
        10159,
        400,
        "Setting PriorityPolicy requires at least one PriorityGroup to be set",
    )
    JSConsumerInvalidPriorityGroupErr = (
        10160,
        400,
        "Provided priority group does not exist for this consumer",
    )
    JSConsumerEmptyGroupName = 10161, 400, "Group name cannot be an empty string"
    JSConsumerInvalidGroupNameErr = (
        10162,
        400,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed "
        "16 characters",
    )
    JSStreamExpectedLastSeqPerSubjectNotReady = (
        10163,
        503,
        "expected last sequence per subject temporarily unavailable",
    )
    JSStreamWrongLastSequenceConstantErr = 10164, 400, "wrong last sequence"
    JSMessageTTLInvalidErr = 10165, 400, "invalid per-message TTL"
    JSMessageTTLDisabledErr = 10166, 400, "per-message TTL is disabled"
    JSStreamTooManyRequests = 10167, 429, "too many requests"
    JSMessageIncrDisabledErr = 10168, 400, "message counters is disabled"
    JSMessageIncrMissingErr = 10169, 400, "message counter increment is missing"
    JSMessageIncrPayloadErr = 10170, 400, "message counter has payload"
    JSMessageIncrInvalidErr = 10171, 400, "message counter increment is invalid"
    JSMessageCounterBrokenErr = 10172, 400, "message counter is broken"
    JSMirrorWithCountersErr = 10173, 400, "stream mirrors can not also calculate counters"
    JSAtomicPublishDisabledErr = 10174, 400, "atomic publish is disabled"
    JSAtomicPublishMissingSeqErr = 10175, 400, "atomic publish sequence is missing"
    JSAtomicPublishIncompleteBatchErr = 10176, 400, "atomic publish batch is incomplete"
    JSAtomicPublishUnsupportedHeaderBatchErr = (
        10177,
        400,
        "atomic publish unsupported header used: {header}",
    )
    JSConsumerPushWithPriorityGroupErr = (
        10178,
        400,
        "priority groups can not be used with push consumers",
    )
    JSAtomicPublishInvalidBatchIDErr = 10179, 400, "atomic publish batch ID is invalid"
    JSStreamMinLastSeqErr = 10180, 412, "min last sequence"
    JSConsumerAckPolicyInvalidErr = 10181, 400, "consumer ack policy invalid"
    JSConsumerReplayPolicyInvalidErr = 10182, 400, "consumer replay policy invalid"
    JSConsumerAckWaitNegativeErr = 10183, 400, "consumer ack wait needs to be positive"
    JSConsumerBackOffNegativeErr = 10184, 400, "consumer backoff needs to be positive"
    JSRequiredApiLevelErr = 10185, 412, "JetStream minimum api level required"
    JSMirrorWithMsgSchedulesErr = 10186, 400, "stream mirrors can not also schedule messages"
    JSSourceWithMsgSchedulesErr = 10187, 400, "stream source can not also schedule messages"
    JSMessageSchedulesDisabledErr = 10188, 400, "message schedules is disabled"
    JSMessageSchedulesPatternInvalidErr = 10189, 400, "message schedules pattern is invalid"
    JSMessageSchedulesTargetInvalidErr = 10190, 400, "message schedules target is invalid"
    JSMessageSchedulesTTLInvalidErr = 10191, 400, "message schedules invalid per-message TTL"
    JSMessageSchedulesRollupInvalidErr = 10192, 400, "message schedules invalid rollup"
    JSStreamExpectedLastSeqPerSubjectInvalid = (
        10193,
        400,
        "missing sequence for expected last sequence per subject",
    )
    JSStreamOfflineReasonErrF = 10194, 500, "stream is offline: {err}"
    JSConsumerOfflineReasonErrF = 10195, 500, "consumer is offline: {err}"
    JSConsumerPriorityGroupWithPolicyNone = (
        10196,
        400,
        "consumer can not have priority groups when policy is none",
    )
    JSConsumerPinnedTTLWithoutPriorityPolicyNone = (
        10197,
        400,
        "PinnedTTL cannot be set when PriorityPolicy is none",
    )
    JSMirrorWithAtomicPublishErr = 10198, 400, "stream mirrors can not also use atomic publishing"
    JSAtomicPublishTooLargeBatchErrF = 10199, 400, "atomic publish batch is too large: {size}"
    JSAtomicPublishInvalidBatchCommitErr = 10200, 400, "atomic publish batch commit is invalid"
    JSAtomicPublishContainsDuplicateMessageErr = (
        10201,
        400,
        "atomic publish batch contains duplicate message id",
    )
    JSClusterServerMemberChangeInflightErr = 10202, 400, "cluster member change is in progress"
    JSMessageSchedulesSourceInvalidErr = 10203, 400, "message schedules source is invalid"
    JSConsumerInvalidResetErr = 10204, 400, "invalid reset: {err}"
    JSBatchPublishDisabledErr = 10205, 400, "batch publish is disabled"
    JSBatchPublishInvalidPatternErr = 10206, 400, "batch publish pattern is invalid"
    JSBatchPublishInvalidBatchIDErr = 10207, 400, "batch publish ID is invalid"
    JSBatchPublishUnknownBatchIDErr = 10208, 400, "batch publish ID unknown"
    JSMirrorWithBatchPublishErr = 10209, 400, "stream mirrors can not also use batch publishing"
    JSAtomicPublishTooManyInflight = 10210, 429, "atomic publish too many inflight"
    JSBatchPublishTooManyInflight = 10211, 429, "batch publish too many inflight"
    JSMessageSchedulesSchedulerInvalidErr = 10212, 400, "message schedules invalid scheduler"
    JSMirrorDurableConsumerCfgInvalid = 10213, 400, "stream mirror consumer config is invalid"
    JSMirrorConsumerRequiresAckFCErr = (
        10214,
        400,
        "stream mirror consumer requires flow control ack policy",
    )
    JSSourceDurableConsumerCfgInvalid = 10215, 400, "stream source consumer config is invalid"
    JSSourceDurableConsumerDuplicateDetected = (
        10216,
        400,
        "duplicate stream source consumer detected",
    )
    JSSourceConsumerRequiresAckFCErr = (
        10217,
        400,
        "stream source consumer requires flow control ack policy",
    )
    JSConsumerAckFCRequiresPushErr = (
        10218,
        400,
        "flow control ack policy requires a push based consumer",
    )
    JSConsumerAckFCRequiresFCErr = 10219, 400, "flow control ack policy requires flow control"
    JSConsumerAckFCRequiresMaxAckPendingErr = (
        10220,
        400,
        "flow control ack policy requires max ack pending",
    )
    JSConsumerAckFCRequiresNoAckWaitErr = (
        10221,
        400,
        "flow control ack policy requires unset ack wait",
    )
    JSConsumerAckFCRequiresNoMaxDeliverErr = (
        10222,
        400,
        "flow control ack policy requires unset max deliver",
    )
    JSMessageSchedulesTimeZoneInvalidErr = 10223, 400, "message schedules time zone is invalid"

    @property
    def err_code(self) -> int:
        """Number of the error, from 10002 to 10223."""
        return self.value[0]

    @property
    def code(self) -> int:
        """HTTP-like status code of the error."""
        return self.value[1]

    @property
    def description(self) -> str:
        """Text of the error; `{placeholders}` are still in it."""
        return self.value[2]


class ApiError(Exception):
    """Refusal of a request: `code` (HTTP-like), `err_code` and `description`.

    `error_id` is None for an error of another server that is passed on unchanged.
    """

    def __init__(
        self, code: int, err_code: int, description: str, error_id: ErrorId | None = None
    ) -> None:
        super().__init__(f"{description} ({err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description
        self.error_id = error_id


def api_error(error_id: ErrorId, **values: object) -> ApiError:
    """Return the error of that row.

    `values` fill its placeholders, for example `api_error(..., err="no such")`.
    """
    description = error_id.description.format_map(values)
    return ApiError(error_id.code, error_id.err_code, description, error_id)


ERRORS_BY_CODE: Final = {error_id.err_code: error_id for error_id in ErrorId}
