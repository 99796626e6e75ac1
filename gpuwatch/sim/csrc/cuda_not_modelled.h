/* Functions of the driver that PyTorch uses and that are not simulated: each returns CUDA_ERROR_NOT_SUPPORTED.
 * Sorted; included only by cuda.c. */
NOT_MODELLED(cuCtxFromGreenCtx) NOT_MODELLED(cuDevResourceGenerateDesc)
NOT_MODELLED(cuDevSmResourceSplitByCount) NOT_MODELLED(cuDeviceGetDevResource) NOT_MODELLED(cuGreenCtxCreate)
NOT_MODELLED(cuGreenCtxDestroy) NOT_MODELLED(cuGreenCtxStreamCreate) NOT_MODELLED(cuLaunchCooperativeKernel)
NOT_MODELLED(cuLinkAddData_v2) NOT_MODELLED(cuLinkComplete) NOT_MODELLED(cuLinkCreate_v2)
NOT_MODELLED(cuMemAddressFree)
NOT_MODELLED(cuMemAddressReserve) NOT_MODELLED(cuMemCreate) NOT_MODELLED(cuMemExportToShareableHandle)
NOT_MODELLED(cuMemGetAllocationGranularity) NOT_MODELLED(cuMemGetAllocationPropertiesFromHandle)
NOT_MODELLED(cuMemImportFromShareableHandle) NOT_MODELLED(cuMemMap) NOT_MODELLED(cuMemRelease)
NOT_MODELLED(cuMemRetainAllocationHandle) NOT_MODELLED(cuMemSetAccess) NOT_MODELLED(cuMemUnmap)
NOT_MODELLED(cuModuleLoad) NOT_MODELLED(cuMulticastAddDevice) NOT_MODELLED(cuMulticastBindMem)
NOT_MODELLED(cuMulticastCreate) NOT_MODELLED(cuMulticastUnbind) NOT_MODELLED(cuStreamWriteValue32)
NOT_MODELLED(cuTensorMapEncodeTiled)
