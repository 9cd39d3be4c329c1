"""An input as JAX arrays, on the device before the model asks for them; over several processes, as global arrays.

>>> for features, label in train.as_jax():  # doctest: +SKIP
...     ...
"""

from typing import TYPE_CHECKING, Any

import jax

from recordmill.pipeline.reader.on_device import OnDevice, mapped

if TYPE_CHECKING:
    from recordmill.pipeline.reader.input import Input


def as_jax(given: "Input", sharding: Any) -> OnDevice:
    """Returns an input's batches as JAX arrays; see `Input.as_jax`."""

    def placed(array: Any) -> Any:
        if array.dtype == object:  # strings, which JAX does not have
            return array
        if sharding is None:
            return jax.device_put(array)
        return jax.make_array_from_process_local_data(sharding, array)

    return OnDevice(given, lambda batch: mapped(placed, batch))
